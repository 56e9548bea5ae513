/** Appends an event to a log, and prints the data of all that is read. */
import { Configuration, EventsApi } from "./fetch/index";

declare const process: { argv: string[] };

async function main(basePath: string, log: string): Promise<void> {
  const events = new EventsApi(new Configuration({ basePath, headers: { accept: "application/json" } }));
  await events.append({ log, append: { events: [{ type: "A", data: "by fetch" }] } });
  for (const each of await events.read({ log, read: { query: { all: true } } })) {
    console.log(`${each.sequenceNumber} ${each.event.data}`);
  }
}

void main(process.argv[2]!, process.argv[3]!);
