"""The name in a client's certificate."""

from __future__ import annotations

from headwater.server.client_certificates import extension_of, subject_of

SUBJECT = ((("countryName", "DE"),), (("organizationName", "Näh, Co"),), (("commonName", "#worker"), ("userId", "7")))


def test_subject_is_written_as_rfc_4514_says():
    assert subject_of({"subject": SUBJECT}) == "CN=\\#worker+UID=7,O=Näh\\, Co,C=DE"


def test_without_a_certificate_there_is_no_extension():
    assert extension_of(None) is None and extension_of({}) is None
    assert extension_of({"subject": SUBJECT[:1]}) == {"tls": {"client_cert_name": "C=DE"}}
