"""THIRD-PARTY.md names what the wheel and the source archive contain of others."""

from tests.docs.documents import ROOT


def test_interface_definitions_of_the_futoin_specifications_are_named() -> None:
    there = {path.name for path in (ROOT / "src/headwater/futoin/interfaces").iterdir()}
    assert {name.partition(".")[0] for name in there} == {"futoin", "headwater"}, "whose are the others?"
    told = (ROOT / "THIRD-PARTY.md").read_text()
    assert "`futoin.*-iface.json`" in told
    assert "https://github.com/futoin/specs" in told
