// Each line that ends with "// wrong" must be refused by the compiler, and no other.
import createClient from "openapi-fetch";

import type { components, paths } from "./dcb.js";

type Schemas = components["schemas"];

export const item: Schemas["QueryItem"] = { types: ["A"], tags: ["a"] };
export const typo: Schemas["QueryItem"] = { typs: ["A"] }; // wrong
export const other: Schemas["QueryItem"] = { eventTypes: ["A"] }; // wrong
export const inside: Schemas["Query"] = { items: [{ types: ["A"], tag: ["a"] }] }; // wrong
export const query: Schemas["Query"] = { item: [] }; // wrong
export const condition: Schemas["Condition"] = { failIfEventsMatch: { all: true }, afer: 1 }; // wrong
export const draft: Schemas["Condition"] = { query: { all: true } }; // wrong
export const event: Schemas["Event"] = { type: "A", tags: [{ key: "a" }] }; // wrong
export const append: Schemas["Append"] = { events: [{ typ: "A" }] }; // wrong

const client = createClient<paths>();
const params = { path: { log: "orders" } };
await client.POST("/logs/{log}/read", { params, body: { query: { all: true }, backwards: true } });
const read = { query: { items: [{ typs: ["A"] }] } } satisfies Schemas["Read"]; // wrong
await client.POST("/logs/{log}/read", { params, body: read });
await client.POST("/logs/{log}/read", { params, body: { query: { all: true }, readBackwards: true } }); // wrong
await client.POST("/logs/{log}/red", { params, body: { query: { all: true } } }); // wrong
