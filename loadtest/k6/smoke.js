// A smoke test: a few requests a second, each compared with the expected answer. One wrong answer makes k6 end with an
// error. It measures nothing; it shows that the parts work together, and gives the dashboard data to draw.
//
//   DELEGATION=$(docker compose run --rm -T mint) docker compose run --rm k6
//   k6 run -e DELEGATION="$(credence mint …)" loadtest/k6/smoke.js
//
// ENVOY           Envoy's address; http://127.0.0.1:8080
// CONTROL_PLANE   the control plane's HTTP API; http://127.0.0.1:7070
// DELEGATION      a delegation that allows the tool catalog.read with the item "shoes", as `docker compose run --rm -T mint`
//                 prints; without it, only requests that are denied or public
// RATE, DURATION  requests a second, and for how long; 20, 15s
import http from "k6/http";
import { check, sleep } from "k6";

const ENVOY = __ENV.ENVOY || "http://127.0.0.1:8080";
const CONTROL_PLANE = __ENV.CONTROL_PLANE || "http://127.0.0.1:7070";
const DELEGATION = (__ENV.DELEGATION || "").trim();

// Requests for the rules of envoy-config/envoy.yaml.
const CASES = [
  { name: "public", path: "/healthz", status: 200 },
  { name: "no delegation", path: "/v1/catalog/book", status: 401, reason: "delegation_missing" },
  { name: "no token", path: "/v1/catalog/book", delegation: "none", status: 401, reason: "delegation_malformed" },
  { name: "no rule", path: "/elsewhere", status: 403, reason: "no_route" },
  // Identity headers from a client are removed, and have no effect.
  { name: "made-up identity", path: "/v1/catalog/book", headers: { "x-delegation-principal": "ada" }, status: 401, reason: "delegation_missing" },
];
if (DELEGATION !== "") {
  CASES.push(
    { name: "delegated", path: "/v1/catalog/shoes", delegation: DELEGATION, status: 200 },
    // The same chain does not hold for another tool.
    { name: "another tool", method: "POST", path: "/v1/accounts/a1/charges?amount=1", delegation: DELEGATION, status: [401, 403] },
  );
}

export const options = {
  scenarios: {
    smoke: {
      executor: "constant-arrival-rate",
      rate: Number(__ENV.RATE || 20),
      timeUnit: "1s",
      duration: __ENV.DURATION || "15s",
      preAllocatedVUs: 4,
    },
  },
  // Every answer must be right, or the run fails.
  thresholds: { checks: ["rate==1"], dropped_iterations: ["count==0"] },
};

// Docker starts the other services at the same time: waits for them, for less than k6's limit for setup (60 s).
function becomesReady(url) {
  for (let attempt = 0; attempt < 20; attempt++) {
    if (http.get(url).status === 200) return true;
    sleep(1);
  }
  return false;
}

export function setup() {
  check(CONTROL_PLANE, {
    "the control plane is ready": (place) => becomesReady(`${place}/readyz`),
  });
  check(ENVOY, { "Envoy is ready": (place) => becomesReady(`${place}/healthz`) });
}

export default function () {
  const wanted = CASES[Math.floor(Math.random() * CASES.length)];
  const headers = { ...wanted.headers };
  if (wanted.delegation) headers.delegation = wanted.delegation;
  const answer = http.request(wanted.method || "GET", ENVOY + wanted.path, null, {
    headers,
    tags: { name: wanted.name },
    responseCallback: http.expectedStatuses(...[wanted.status].flat()),
  });
  check(answer, {
    [`${wanted.name}: status`]: ({ status }) => [wanted.status].flat().includes(status),
    [`${wanted.name}: reason`]: ({ body }) => !wanted.reason || JSON.parse(body).reason === wanted.reason,
  });
}
