// Lends copies of books: it reads, decides and appends, and it follows.
//
//   lend.js URL LOG lend COPY MEMBER
//   lend.js URL LOG follow COUNT
import createClient from "openapi-fetch";

import type { components, paths } from "./dcb.js";

declare const process: { argv: string[]; exitCode: number };

const [url = "", log = "", what = "", ...more] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: url });

/** What a decision about a copy depends on. */
function boundary(copy: string): components["schemas"]["Query"] {
  return { items: [{ types: ["CopyLent", "CopyReturned"], tags: [`copy:${copy}`] }] };
}

/** Reads, decides and appends, and begins again when somebody was faster. Answers the number of the event. */
async function lend(copy: string, member: string): Promise<number> {
  for (;;) {
    const read = await client.POST("/logs/{log}/read", {
      params: { path: { log } },
      body: { query: boundary(copy) },
      headers: { accept: "application/json" },
    });
    if (read.data === undefined) {
      throw new Error(`read: ${read.error?.detail ?? read.response.status}`); // a proxy has no problem document
    }
    const found = read.data as components["schemas"]["Envelope"][]; // the form that was asked for
    let holder: string | null = null;
    for (const { event } of found) {
      holder = event.type === "CopyLent" ? (JSON.parse(event.data ?? "") as { member: string }).member : null;
    }
    if (holder !== null) {
      throw new Error(`refused: copy ${copy} is lent to ${holder}`);
    }
    const appended = await client.POST("/logs/{log}/append", {
      params: { path: { log } },
      body: {
        events: [{ type: "CopyLent", data: JSON.stringify({ copy, member }), tags: [`copy:${copy}`, `member:${member}`] }],
        condition: { failIfEventsMatch: boundary(copy), after: Number(read.response.headers.get("headwater-head")) },
      },
    });
    if (appended.data !== undefined) {
      return appended.data.sequence_number;
    }
    if (appended.response.status !== 409) {
      throw new Error(`append: ${appended.error?.detail ?? appended.response.status}`);
    }
  }
}

/** Writes so many events, from the first on, and waits for those that are to come. */
async function follow(count: number): Promise<void> {
  const answer = await client.GET("/logs/{log}/subscribe", {
    params: { path: { log }, query: { query: "all", after: 0 } },
    parseAs: "stream",
  });
  if (answer.data === undefined || answer.data === null) {
    throw new Error(`subscribe: ${answer.response.status}`);
  }
  const stream: ReadableStream<Uint8Array> = answer.data;
  const [reader, decoder] = [stream.getReader(), new TextDecoder()];
  let text = "";
  while (count > 0) {
    const { done, value } = await reader.read();
    if (done) {
      throw new Error("the subscription ended");
    }
    const lines = (text + decoder.decode(value, { stream: true })).split("\n");
    text = lines.pop() ?? ""; // a line may come in several pieces
    for (const line of lines.filter((each) => each.startsWith("data: ")).slice(0, count)) {
      const envelope = JSON.parse(line.slice("data: ".length)) as components["schemas"]["Envelope"];
      console.log(envelope.sequence_number, envelope.event.type);
      count -= 1;
    }
  }
  await reader.cancel();
}

try {
  if (what === "lend") {
    console.log("event", await lend(more[0] ?? "", more[1] ?? ""));
  } else {
    await follow(Number(more[0]));
  }
} catch (error) {
  console.log(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
