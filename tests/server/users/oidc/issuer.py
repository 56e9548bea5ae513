"""An OpenID Connect issuer on loopback: discovery, keys of its own, and the tokens that it gives."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "headwater-test"
RSA_KEYS = [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)]
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
SHORT_KEY = rsa.generate_private_key(public_exponent=65537, key_size=1024)
_PUBLISHED = {"RS": RSAAlgorithm, "PS": RSAAlgorithm, "ES": ECAlgorithm, "Ed": OKPAlgorithm}


class Issuer:
    """A context manager; `keys` are published: name, algorithm and key."""

    def __init__(self, port: int = 0) -> None:
        self.keys: dict[str, tuple[str, Any]] = {"r1": ("RS256", RSA_KEYS[0])}
        self.own_algorithms: dict[str, str] = {}
        """The `alg` of published keys by their names."""
        self.asked: Counter[str] = Counter()
        self.named: str | None = None
        """The issuer that its discovery document names, if not itself."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked[self.path] += 1
                body = json.dumps(issuer.documents().get(self.path, {})).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def documents(self) -> dict[str, Any]:
        """What is served."""
        return {
            "/.well-known/openid-configuration": {"issuer": self.named or self.url, "jwks_uri": f"{self.url}/keys"},
            "/keys": {"keys": [self._published(kid, *key) for kid, key in self.keys.items()]},
        }

    def _published(self, kid: str, algorithm: str, key: Any) -> dict[str, Any]:
        made: Any = _PUBLISHED[algorithm[:2]]
        own = {"alg": self.own_algorithms[kid]} if kid in self.own_algorithms else {}
        return {**json.loads(made.to_jwk(key.public_key())), "kid": kid, "use": "sig", **own}

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Of a token that is right; None leaves one out."""
        now = int(time.time())
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "robot", "exp": now + 300, "iat": now,
                 "headwater": ["read,append:orders-*"]}  # fmt: skip
        return {name: value for name, value in {**usual, **changed}.items() if value is not None}

    def token(self, kid: str | None = "r1", *, algorithm: str = "", key: Any = None, **changed: Any) -> str:
        """A token signed by a published key, or another."""
        found = self.keys.get(kid or "r1", ("RS256", RSA_KEYS[0]))
        headers = {} if kid is None else {"kid": kid}
        return jwt.encode(self.claims(**changed), key or found[1], algorithm or found[0], headers)

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Issuer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
