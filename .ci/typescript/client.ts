// A client of the HTTP API in TypeScript, of types that are generated from /openapi.json alone: it puts a receiver,
// publishes an event, and follows it to its attempts.
import createClient from "openapi-fetch";
import type { components, paths } from "./openapi.js";

const { ANGARIUM_URL: baseUrl, ANGARIUM_TOKEN: token, RECEIVER_URL: url } = process.env;
if (!baseUrl || !token || !url) throw new Error("ANGARIUM_URL, ANGARIUM_TOKEN and RECEIVER_URL are needed");
const client = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${token}` } });
const billing = { tenant: "acme", name: "billing" };

/** The answer of an operation; a problem ends the program. */
function done<T>(answer: { data?: T; error?: components["schemas"]["Problem"] }): T {
  if (answer.error) throw new Error(`${answer.error.status} ${answer.error.detail}`);
  if (answer.data === undefined) throw new Error("the answer has no body");
  return answer.data;
}

const configuration: components["schemas"]["ReceiverConfiguration"] = {
  url,
  rate: { limit: 20, per: "second", burst: 5 },
  retry: { base_s: 0.5, max_attempts: 3 },
  order: "strict",
};
// What does not fit is refused by the compiler: types that take everything would prove nothing.
const wrong: components["schemas"]["ReceiverConfiguration"][] = [
  // @ts-expect-error: no such order
  { url, order: "sorted" },
  // @ts-expect-error: a limit is a number
  { url, rate: { limit: "many", per: "second" } },
  // @ts-expect-error: no such member
  { url, rates: "10/second" },
  // @ts-expect-error: without a URL
  { paused: true },
];
const put = done(
  await client.PUT("/v1/tenants/{tenant}/receivers/{name}", { params: { path: billing }, body: configuration }),
);
const shown = done(await client.GET("/v1/tenants/{tenant}/receivers/{name}", { params: { path: billing } }));
const published = done(
  await client.POST("/v1/tenants/{tenant}/receivers/{name}/events/{type}", {
    params: { path: { ...billing, type: "order.created" }, header: { "Angarium-Id": "order-17" } },
    body: { order: 17 },
  }),
);

// The ledger follows within a second.
async function attempts(): Promise<components["schemas"]["AttemptItem"][]> {
  for (;;) {
    const answer = await client.GET("/v1/tenants/{tenant}/receivers/{name}/attempts", {
      params: { path: billing, query: { type: "order.created", limit: 10 } },
    });
    if (answer.response.status !== 404) {
      const page = done(answer);
      if (page.attempts.some((each) => each.verdict === "delivered")) return page.attempts;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const [attempt] = await attempts();
const refused = await client.GET("/v1/tenants/{tenant}/receivers/{name}", {
  params: { path: { tenant: "acme", name: "nobody" } },
});
console.log(
  JSON.stringify({
    receiver: put.receiver,
    rate: shown.rate,
    id: published.id,
    wrong: wrong.length,
    sequence: attempt?.sequence,
    status: attempt?.status,
    refused: refused.error?.status,
  }),
);
