import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.served_memory import ServedMemory

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "decide.py": """\
ann: subscribed, event 1
bob: subscribed, event 2
ann: refused, ann has a seat in chess
cleo: refused, chess is full
""",
    "course_subscriptions.py": """\
ann chess: event 4
ann chess: refused, ann has a seat in chess
bob chess: event 5
cleo chess: refused, chess has no seat
ann go: event 6
ann whist: refused, ann has 2 courses
""",
    "unique_username.py": "ann is taken\nann has an account again\n",
    "invoice_number.py": "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n",
    "opt_in_token.py": """\
ann@example.com signed up
refused, ann@example.com is confirmed
refused, there is no such token
refused, the token is too old
""",
    "dynamic_price.py": """\
bought for 750
bought for 800
refused, tea does not cost 320
refused, tea does not cost 300
""",
    "double_submission.py": """\
order 1: placed
order 1: placed before
order 3: placed
""",
    "follow.py": "customer:ann: 2\ncustomer:bob: 1\n",
    "outbox.py": """\
hat: 2 wanted, 1 are there
1 ARTICLE_SOLD {"article":"hat","pieces":2}
""",
    "load.py": """\
4 appended, 0 already existed
0 appended, 4 already existed
2024-05-01T09:00:00Z  register request
2024-05-01T11:15:00Z  check ticket
2024-05-03T10:00:00Z  reject request
""",
    "notifications.py": "event 1: LOCKED\nevent 2: HOLDOVER\nevent 3: LOCKED\n",
}


@pytest.fixture
def served() -> Iterator[ServedMemory]:
    served = ServedMemory()
    yield served
    served.stop()


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == SAYS.keys()


@pytest.mark.parametrize("name", SAYS)
def test_an_example_says_what_it_promises(name: str, served: ServedMemory, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name))["main"](served.url)
    assert capsys.readouterr().out == SAYS[name]
