"""Why a connection can never work: TLS against plain HTTP, or a certificate that is not trusted."""

from __future__ import annotations

import socket
import ssl

from .address import Address

LOOK_S = 2.0
"""How long the check for TLS may take."""


def why_hopeless(error: OSError, address: Address, *, has_received: bool) -> str | None:
    """The message for an error that retrying cannot fix, with the remedy; None for any other error.

    `has_received` says whether the server sent anything before it. A server with TLS silently closes a connection with
    plain HTTP. As that can have other reasons, a TLS connection is tried once to find out.
    """
    if isinstance(error, ssl.SSLError):
        return why_tls_fails(error, "http")
    is_cut_off = not has_received and not isinstance(error, ConnectionRefusedError | TimeoutError | socket.gaierror)
    if address.tls is None and address.unix_path is None and is_cut_off and _speaks_tls(address):
        return "the server expects TLS on that port; use the scheme https://"
    return None


def why_tls_fails(error: Exception, plain_scheme: str) -> str | None:
    """The same for a handshake of any protocol; None for another error. `plain_scheme` is that of URLs without TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = f"its certificate is not trusted: {error.verify_message}"
        return f"{problem}; pass the certificate of the authority that signed it (ca_file, --ca-file)"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return f"the server does not use TLS on that port; use the scheme {plain_scheme}://"
    return None


def _speaks_tls(address: Address) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((address.host, address.port), LOOK_S) as plain,
            context.wrap_socket(plain, server_hostname=address.host),
        ):
            return True
    except ssl.SSLError as error:
        return error.reason is not None and "ALERT" in error.reason  # it requires another version, or our certificate
    except OSError:
        return False
