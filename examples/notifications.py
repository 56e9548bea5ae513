"""A workload that follows the lock state of its node's clock, with nothing but the standard library.

    python examples/notifications.py [http://127.0.0.1:8080]

It publishes a state as a node's clock would, subscribes with a webhook, and prints what comes. A real producer and a
real consumer are two programs; the consumer's address must be one that the server's setting `cne.hosts` allows.
"""

import json
import queue
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

API = "/api/ocloudNotifications/v2"
RESOURCE = "/cluster/node/worker-0/sync/ptp-status/lock-state"


class Webhook(BaseHTTPRequestHandler):
    """Takes notifications: 204 says that it has one."""

    arrived: queue.Queue[str] = queue.Queue()

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(204)
        self.end_headers()
        self.arrived.put(f"event {int(event['sequence'])}: {event['data']['values'][0]['value']}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


def post(url: str, body: Any) -> Any:
    """The answer to a POST of JSON."""
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as answer:
        return json.loads(answer.read())


def publish(api: str, publisher: str, state: str) -> None:
    """Tell that the clock is in another state."""
    value = {"ResourceAddress": RESOURCE, "data_type": "notification", "value_type": "enumeration", "value": state}
    event = {
        "id": publisher,
        "type": "event.sync.ptp-status.ptp-state-change",
        "source": "/sync/ptp-status/lock-state",
        "data": {"version": "1.0", "values": [value]},
    }
    post(f"{api}/create/event", event)


def main(url: str) -> None:
    """A clock and a workload."""
    api = url + API
    publisher = post(f"{api}/publishers", {"ResourceAddress": RESOURCE})["SubscriptionId"]
    publish(api, publisher, "LOCKED")
    with HTTPServer(("127.0.0.1", 0), Webhook) as webhook:
        threading.Thread(target=webhook.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{webhook.server_port}/event"
        post(f"{api}/subscriptions", {"EndpointUri": endpoint, "ResourceAddress": RESOURCE})
        for state in ("HOLDOVER", "LOCKED"):
            publish(api, publisher, state)
        for _ in range(3):  # the first one is the greeting: the state at the time of the subscription
            print(Webhook.arrived.get(timeout=10))
        webhook.shutdown()


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8080"]))
