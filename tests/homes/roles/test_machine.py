"""The role of one server, event by event."""

from __future__ import annotations

import random

import pytest

from headwater.homes.roles import actions, events
from headwater.homes.roles.lease import LeaseTimes
from headwater.homes.roles.machine import Role, Roles, Stage

TIMES = LeaseTimes()


class One:
    """A server's role and its clock; what it asks for is kept."""

    def __init__(self, seed: int = 1) -> None:
        self.roles = Roles(TIMES, random.Random(seed))
        self.now = 100.0

    def tell(self, event, after: float = 0.0):
        self.now += after
        return self.roles.receive(event, self.now)

    def wake(self):
        """The next tick, at its time."""
        self.now = max(self.now, self.roles.wake_at)
        return self.tell(events.Tick())

    def following(self):
        self.tell(events.CopyOpened())
        self.tell(events.ClockCompared(0.1, 0.01))
        return self

    def asked(self):
        """It asked for the lease."""
        self.following()
        [self.question] = self.wake()
        assert isinstance(self.question, actions.TryLease)
        return self

    def got(self, number: int = 7, after: float = 0.01):
        self.term = (number, self.question.nonce)
        return self.tell(events.LeaseGot(self.term, 1, self.question.sent_at), after)

    def primary(self):
        self.asked().got()
        for event in (events.SessionsEnded, events.JournalFenced, events.LogsFenced, events.CaughtUp):
            self.last = self.tell(event(self.term), 0.01)
        assert self.roles.role is Role.PRIMARY
        return self


def kinds(done):
    return [type(action) for action in done if not isinstance(action, actions.Tell)]


def told(done):
    return [action.what for action in done if isinstance(action, actions.Tell)]


def test_a_takeover_goes_step_by_step():
    one = One().asked()
    steps = [kinds(one.got())]
    for event in (events.SessionsEnded, events.JournalFenced, events.LogsFenced, events.CaughtUp):
        steps.append(kinds(one.tell(event(one.term))))
    assert steps == [
        [actions.EndSessions],
        [actions.FenceJournal],
        [actions.FenceLogs],
        [actions.CatchUp],
        [actions.AcceptAppends, actions.StartCoordinators],
    ]
    assert (one.roles.role, one.roles.term) == (Role.PRIMARY, one.term)


def test_answers_out_of_turn_and_of_other_terms_change_nothing():
    one = One().asked()
    one.got()
    other = (one.term[0], 12345)
    for event in (events.CaughtUp(one.term), events.LogsFenced(one.term), events.SessionsEnded(other)):
        assert one.tell(event) == []
    assert one.roles.stage is Stage.ENDING_SESSIONS


def test_sessions_that_nobody_can_end_do_not_stop_a_takeover_and_a_fence_is_asked_for_again():
    one = One().asked()
    one.got()
    assert actions.FenceJournal in kinds(one.tell(events.Tick(), TIMES.patience_s))
    one.tell(events.LeaseRenewed(one.term, one.now))
    assert actions.FenceJournal in kinds(one.tell(events.Tick(), TIMES.patience_s))


def test_a_late_answer_is_not_asked_for_again_and_the_lease_is_renewed_before_what_comes_next():
    one = One().asked()
    one.got()
    one.tell(events.SessionsEnded(one.term))
    done = kinds(one.tell(events.JournalFenced(one.term), TIMES.patience_s + TIMES.renewal_s))
    assert done == [actions.RenewLease, actions.FenceLogs]


def test_who_steps_down_waits_for_its_coordinators_though_its_lease_is_lost_meanwhile():
    one = One().primary()
    one.tell(events.HandOverAsked("b"))
    assert kinds(one.tell(events.LeaseLost(one.term))) == []
    assert kinds(one.tell(events.CoordinatorsStopped())) == [actions.ReleaseLease]


def test_the_lease_is_renewed_while_a_takeover_lasts():
    one = One().asked()
    one.got()
    asked = [kind for _ in range(3) for kind in kinds(one.wake())]
    assert actions.RenewLease in asked


def test_a_holder_without_renewals_is_primary_for_two_thirds_of_a_lease_since_it_asked():
    one = One().primary()
    sent_at = one.question.sent_at
    while one.roles.role is Role.PRIMARY:
        done = one.wake()
    assert one.now == pytest.approx(sent_at + TIMES.held_s)
    assert kinds(done) == [actions.RefuseAppends, actions.StopCoordinators]
    assert kinds(one.tell(events.CoordinatorsStopped())) == [actions.ReleaseLease]


def test_time_counts_from_when_a_renewal_was_sent():
    one = One().primary()
    [renewal] = one.wake()
    one.tell(events.LeaseRenewed(one.term, renewal.sent_at), 0.9)
    assert one.roles.may_act(renewal.sent_at + TIMES.held_s - 0.01)
    assert not one.roles.may_act(renewal.sent_at + TIMES.held_s)


def test_who_ended_by_itself_does_not_keep_the_lease_that_was_renewed_too_late():
    one = One().primary()
    [renewal] = one.wake()
    assert not one.roles.may_act(one.now + TIMES.held_s - 0.1)
    one.tell(events.LeaseRenewed(one.term, renewal.sent_at), TIMES.held_s - 0.1)
    assert one.roles.role is Role.PRIMARY
    done = one.tell(events.CoordinatorsStopped(one.term))
    assert kinds(done) == [actions.RefuseAppends, actions.StopCoordinators, actions.ReleaseLease]
    one.tell(events.LeaseReleased(one.term))
    assert one.roles.role is Role.FOLLOWING


def test_what_ended_in_an_earlier_term_does_not_end_this_one():
    one = One().primary()
    assert kinds(one.tell(events.CoordinatorsStopped((1, 7)))) == []
    assert kinds(one.tell(events.CoordinatorsStopped())) == []
    assert one.roles.role is Role.PRIMARY


def test_a_process_that_slept_may_not_act_before_it_heard_of_the_time():
    one = One().primary()
    assert one.roles.may_act(one.now)
    assert not one.roles.may_act(one.now + 20.0)


@pytest.mark.parametrize(
    "event", [events.HomeReachable(), events.CopyMended(), events.LeaseRefused("y", 3.0), events.LeaseOffered()]
)
def test_whatever_a_process_hears_first_after_a_sleep_it_steps_down(event):
    one = One().primary()
    done = one.tell(event, 20.0)
    assert kinds(done)[:2] == [actions.RefuseAppends, actions.StopCoordinators]


def test_a_renewal_of_before_a_sleep_keeps_nobody_primary():
    one = One().primary()
    [renewal] = one.wake()
    assert actions.RefuseAppends in kinds(one.tell(events.LeaseRenewed(one.term, renewal.sent_at), 20.0))


def test_a_foreign_term_ends_the_role_and_that_of_an_earlier_term_does_not():
    one = One().primary()
    assert one.tell(events.ForeignTerm((3, 99), (5, 1))) == []
    done = one.tell(events.ForeignTerm(one.term, (one.term[0], 99)))
    assert (kinds(done), told(done)) == ([actions.RefuseAppends, actions.StopCoordinators], ["stepping-down"])


def test_a_lost_answer_is_asked_for_with_the_same_nonce():
    one = One().asked()
    [again] = one.wake()
    assert again.nonce == one.question.nonce and again.sent_at > one.question.sent_at


def test_an_answer_that_comes_too_late_is_asked_for_again():
    one = One().asked()
    done = one.got(after=TIMES.held_s)
    assert kinds(done)[-1] is actions.TryLease and done[-1].nonce == one.question.nonce
    assert one.roles.role is Role.FOLLOWING


def test_a_lease_that_nobody_waits_for_is_released():
    one = One().primary()
    stray = (9, one.term[1])
    assert one.tell(events.LeaseGot(stray, 1, one.now)) == [actions.ReleaseLease(stray, None)]
    assert one.roles.role is Role.PRIMARY


def test_the_same_lease_once_more_is_a_renewal():
    one = One().primary()
    later = one.now + 1.0
    one.tell(events.LeaseGot(one.term, 1, later), 1.0)
    assert one.roles.may_act(later + TIMES.held_s - 0.01)


def test_a_refusal_says_when_to_try_and_candidates_try_apart():
    moments = set()
    for seed in range(20):
        one = One(seed).asked()
        one.tell(events.LeaseRefused("y", 3.0))
        moments.add(one.roles.wake_at - one.now)
        assert one.roles.holder == "y"
    assert len(moments) == 20 and min(moments) >= 3.0 and max(moments) <= 3.0 + TIMES.jitter_s


def test_nobody_waits_longer_than_a_lease():
    one = One().asked()
    one.tell(events.LeaseRefused("y", 3600.0))
    assert one.roles.wake_at - one.now <= TIMES.length_s + TIMES.jitter_s


@pytest.mark.parametrize("off_s", [2.1, -2.1, 3600.0])
def test_a_clock_that_is_off_takes_no_lease_and_keeps_none(off_s):
    one = One().asked()
    assert told(one.tell(events.ClockCompared(off_s, 0.01))) == ["clock-off"]
    assert one.roles.wake_at == float("inf")
    assert kinds(one.got()) == [actions.ReleaseLease]
    other = One().primary()
    assert actions.RefuseAppends in kinds(other.tell(events.ClockCompared(off_s, 0.01)))


def test_two_databases_that_take_writes_end_a_term_and_begin_none():
    one = One().primary()
    done = one.tell(events.TwoHostsWrite("a and b take writes"))
    assert told(done) == ["two-hosts-write", "stepping-down"] and actions.RefuseAppends in kinds(done)
    one.tell(events.CoordinatorsStopped(one.term))
    one.tell(events.LeaseReleased(one.term))
    assert (one.roles.role, one.roles.wake_at) == (Role.FOLLOWING, float("inf"))
    assert told(one.tell(events.OneHostWrites())) == ["two-hosts-write"]
    assert kinds(one.wake()) == [actions.TryLease]


def test_a_term_ends_when_its_standbys_change_and_another_one_may_begin():
    one = One().primary()
    assert one.tell(events.StandbysChanged((1, 1), "of another term")) == []
    done = one.tell(events.StandbysChanged(one.term, "others are named"))
    assert told(done) == ["stepping-down"] and actions.RefuseAppends in kinds(done)
    assert one.tell(events.StandbysChanged(one.term, "others are named")) == []
    one.tell(events.CoordinatorsStopped(one.term))
    one.tell(events.LeaseReleased(one.term))
    assert kinds(one.wake()) == [actions.TryLease]


def test_a_clock_is_judged_by_what_is_sure():
    one = One().following()
    assert one.tell(events.ClockCompared(2.4, 1.0)) == []
    assert one.tell(events.ClockCompared(8.0, 20.0)) == []
    assert told(one.tell(events.ClockCompared(2.6, 1.0))) == ["clock-off"]
    assert told(one.tell(events.ClockCompared(0.0, 0.1))) == ["clock-off"]
    assert one.roles.obstacles == set()


def test_a_slow_answer_too_shows_a_clock_that_is_an_hour_off():
    """A primary with such answers alone went on for as long as they came in time."""
    one = One().primary()
    assert actions.RefuseAppends in kinds(one.tell(events.ClockCompared(3600.0, 4.0)))


def test_a_clock_that_was_never_compared_takes_no_lease():
    one = One()
    one.tell(events.CopyOpened())
    [one.question] = one.wake()
    assert kinds(one.got()) == [actions.ReleaseLease]


def test_a_copy_that_cannot_be_written_gives_the_lease_away_and_takes_none_until_it_is_mended():
    one = One().primary()
    assert actions.RefuseAppends in kinds(one.tell(events.CopyFailed("disk full")))
    assert kinds(one.tell(events.CoordinatorsStopped())) == [actions.ReleaseLease]
    one.tell(events.LeaseReleased(one.term))
    assert (one.roles.role, one.roles.wake_at) == (Role.FOLLOWING, float("inf"))
    one.tell(events.CopyMended())
    assert actions.TryLease in kinds(one.wake())


def test_an_orderly_stop_passes_the_lease_before_anything_drains():
    one = One().primary()
    assert kinds(one.tell(events.StopAsked("y"))) == [actions.RefuseAppends, actions.StopCoordinators]
    assert one.tell(events.CoordinatorsStopped()) == [actions.ReleaseLease(one.term, "y")]
    assert one.tell(events.LeaseReleased(one.term)) == [actions.OfferLease("y"), actions.Drain()]
    assert one.roles.role is Role.STOPPED


def test_an_orderly_stop_waits_for_nobody_for_long():
    one = One().primary()
    one.tell(events.StopAsked("y"))
    assert kinds(one.wake()) == [actions.ReleaseLease]
    assert kinds(one.wake()) == [actions.OfferLease, actions.Drain]


def test_who_is_offered_the_lease_asks_for_it_at_once():
    one = One().asked()
    one.tell(events.LeaseRefused("y", 5.0))
    assert kinds(one.tell(events.LeaseOffered())) == [actions.TryLease]


def test_who_handed_over_leaves_the_lease_to_the_other_for_a_while():
    one = One().primary()
    one.tell(events.HandOverAsked("y"))
    one.tell(events.CoordinatorsStopped())
    one.tell(events.LeaseReleased(one.term))
    assert one.roles.role is Role.FOLLOWING and one.roles.wake_at >= one.now + TIMES.length_s


@pytest.mark.parametrize("start", [One.following, One.asked, One.primary])
def test_a_home_that_went_back_stops_appends_and_is_marked(start):
    one = start(One())
    done = one.tell(events.HomeRollbackSeen("a", 100, 90))
    assert one.roles.role is Role.WENT_BACK
    assert told(done) == ["home-went-back"] and actions.MarkHome("a", 100, 90) in done
    assert (actions.RefuseAppends in kinds(done)) is (start is One.primary)
    assert kinds(one.wake()) == [actions.MarkHome]
    one.tell(events.HomeChangeSeen())
    assert one.roles.wake_at == float("inf")
    assert told(one.tell(events.HomeAccepted())) == ["home-accepted"]
    assert actions.TryLease in kinds(one.wake())


def test_a_home_of_another_history_stops_appends_and_who_is_ahead_of_it_says_so():
    one = One().primary()
    done = one.tell(events.HomeChangeSeen())
    assert (one.roles.role, told(done)) == (Role.WENT_BACK, ["home-changed"])
    assert kinds(one.tell(events.HomeRollbackSeen("a", 100, 90))) == [actions.MarkHome]


def test_what_is_told_to_who_stopped_changes_nothing_but_a_lease_is_given_back():
    one = One().asked()
    assert kinds(one.tell(events.StopAsked())) == [actions.Drain]
    assert kinds(one.got()) == [actions.ReleaseLease]
    for event in (
        events.HomeChangeSeen(),
        events.HomeRollbackSeen("a", 2, 1),
        events.HomeAccepted(),
        events.CopyOpened(),
    ):
        assert one.tell(event) == []
    assert (one.roles.role, one.roles.wake_at) == (Role.STOPPED, float("inf"))


def test_an_operator_is_told_whether_the_home_is_reached():
    one = One().asked()
    assert told(one.tell(events.HomeUnreachable())) == ["home-unreachable"]
    assert told(one.tell(events.HomeReachable())) == ["home-reachable"]
    assert one.roles.wake_at <= one.now + TIMES.jitter_s


_SOME = [
    events.CopyOpened(),
    events.Tick(),
    events.ClockCompared(0.0, 0.01),
    events.ClockCompared(9.0, 0.01),
    events.LeaseRefused("y", 1.0),
    events.CopyFailed("full"),
    events.CopyMended(),
    events.TwoHostsWrite("a and b take writes"),
    events.OneHostWrites(),
    events.CoordinatorsStopped(),
    events.StopAsked("y"),
    events.HandOverAsked("y"),
    events.LeaseOffered(),
    events.HomeUnreachable(),
    events.HomeReachable(),
    events.HomeRollbackSeen("a", 2, 1),
    events.HomeChangeSeen(),
    events.HomeAccepted(),
]
_OF_TERM = [
    events.LeaseLost,
    lambda term: events.StandbysChanged(term, "others are named"),
    events.LeaseReleased,
    events.SessionsEnded,
    events.JournalFenced,
    events.LogsFenced,
    events.CaughtUp,
]


def test_any_events_in_any_order_keep_what_always_holds():
    """Coordinators are stopped before others start, and appends and coordinators have their place in a term."""
    rng = random.Random(5)
    for _ in range(300):
        one = One(rng.getrandbits(30))
        accepts, runs, nonce, sent_at = False, False, 0, 0.0
        for _ in range(60):
            roll = rng.random()
            if roll < 0.35:
                term = one.roles.term or (rng.randrange(3), nonce)
                event = rng.choice(_OF_TERM)(term)
            elif roll < 0.5:
                event = events.LeaseGot((rng.randrange(9), nonce), 1, sent_at)
            elif roll < 0.6:
                event = events.LeaseRenewed(one.roles.term or (1, 1), one.now)
            elif roll < 0.65:
                event = events.ForeignTerm(one.roles.term or (1, 1), (8, 8))
            else:
                event = rng.choice(_SOME)
            for action in one.tell(event, rng.random() * 1.5):
                if isinstance(action, actions.TryLease):
                    nonce, sent_at = action.nonce, action.sent_at
                elif isinstance(action, actions.AcceptAppends):
                    assert not accepts and one.roles.term == action.term
                    accepts = True
                elif isinstance(action, actions.RefuseAppends):
                    accepts = False
                elif isinstance(action, actions.StartCoordinators):
                    assert not runs and accepts
                    runs = True
                elif isinstance(action, actions.StopCoordinators):
                    runs = False
            is_primary = one.roles.role is Role.PRIMARY
            assert accepts is runs is is_primary
            assert not one.roles.may_act(one.now) or is_primary
            assert one.roles.wake_at > one.now or not is_primary


def test_who_closes_its_copy_takes_no_lease_until_it_is_open_again():
    one = One().primary()
    one.tell(events.CopyClosed())
    one.tell(events.CoordinatorsStopped(one.term))
    one.tell(events.LeaseReleased(one.term))
    assert (one.roles.role, one.roles.wake_at) == (Role.STARTING, float("inf"))
    assert not kinds(one.tell(events.LeaseOffered())) and not kinds(one.tell(events.Tick(), 60.0))
    one.tell(events.CopyOpened())
    assert one.roles.role is Role.FOLLOWING and kinds(one.wake()) == [actions.TryLease]


def test_who_closes_its_copy_while_it_takes_over_gives_the_lease_back():
    one = One().asked()
    one.got()
    assert kinds(one.tell(events.CopyClosed())) == [actions.ReleaseLease]
    one.tell(events.LeaseReleased(one.term))
    assert one.roles.role is Role.STARTING


def test_a_replica_that_closes_its_copy_does_not_wait_for_a_lease_that_it_asked_for():
    one = One().asked()
    one.tell(events.CopyClosed())
    assert one.roles.role is Role.STARTING
    assert kinds(one.got()) == [actions.ReleaseLease]
