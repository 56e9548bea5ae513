// Speaks DCB over HTTP with the types that openapi-typescript makes of the server's OpenAPI document.
//
// It is given the URL of a server and the name of a log. It appends an event, reads it back, and appends once more on
// the condition that it is not there. What it was answered it writes as one JSON object.
import createClient from "openapi-fetch";

import type { paths as Notifications } from "./cne.js";
import type { components, paths } from "./dcb.js";

declare const process: { argv: [string, string, string, string] };

const [, , baseUrl, log] = process.argv;
const client = createClient<paths>({ baseUrl });
const params = { path: { log } };

const query: components["schemas"]["Query"] = { items: [{ types: ["CourseDefined"], tags: ["course:c1"] }] };
const body: components["schemas"]["Append"] = {
  events: [{ type: "CourseDefined", data: '{"capacity":10}', tags: ["course:c1"] }],
  condition: { failIfEventsMatch: query },
};

const appended = await client.POST("/logs/{log}/append", { params, body });
const read = await client.POST("/logs/{log}/read", {
  params,
  body: { query },
  headers: { accept: "application/json" },
});
if (appended.data === undefined || read.data === undefined) {
  throw new Error(JSON.stringify([appended.error, read.error]));
}
const refused = await client.POST("/logs/{log}/append", { params, body });
if (refused.error === undefined) {
  throw new Error("the condition does not hold, and the events were appended");
}
const problem: components["schemas"]["Problem"] = refused.error;
const at: number | undefined = problem.sequence_number;

const notifications = createClient<Notifications>({ baseUrl });
const subscriptions = await notifications.GET("/api/ocloudNotifications/v2/subscriptions");

console.log(
  JSON.stringify({
    appended: appended.data,
    read: read.data,
    head: read.response.headers.get("headwater-head"),
    status: refused.response.status,
    problem: { ...problem, sequence_number: at },
    states: subscriptions.data?.map((each) => each.ResourceAddress),
  }),
);
