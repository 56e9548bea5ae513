/** Appends an event to a log, and prints the data of all that is read. */
import { Configuration, EventsApi } from "./axios/index";

declare const process: { argv: string[] };

async function main(basePath: string, log: string): Promise<void> {
  const events = new EventsApi(new Configuration({ basePath }));
  await events.append(log, { events: [{ type: "A", data: "by axios" }] });
  for (const each of (await events.read(log, { query: { all: true } })).data) {
    console.log(`${each.sequence_number} ${each.event.data}`);
  }
}

void main(process.argv[2]!, process.argv[3]!);
