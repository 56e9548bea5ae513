import zipfile
from pathlib import Path

import pytest
from demo.flights import load_year, timestamp

from headwater.core.limits import check_append
from headwater.core.settings import LogSettings

AIRPORTS = (
    "faa,name,lat,lon,alt,tz,dst,tzone\nLAX,x,0,0,0,-8,A,America/Los_Angeles\nBOS,x,0,0,0,-5,A,America/New_York\n"
)
FLIGHTS = """\
year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,\
air_time,distance,hour,minute,time_hour
2013,1,1,2340,2330,10,245,230,15,UA,1,N1,EWR,LAX,330,2400,23,30,2013-01-02T04:00:00Z
2013,1,1,600,600,0,700,700,0,B6,2,N2,JFK,BOS,40,187,6,0,2013-01-01T11:00:00Z
2013,1,1,NA,700,NA,NA,800,NA,B6,3,NA,JFK,BOS,NA,187,7,0,2013-01-01T12:00:00Z
2013,1,1,800,800,0,NA,1200,NA,B6,4,N4,JFK,SJU,NA,1598,8,0,2013-01-01T13:00:00Z
2013,1,1,900,900,0,1330,1340,-10,B6,5,N5,JFK,SJU,190,1598,9,0,2013-01-01T14:00:00Z
"""
WEATHER = """\
origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour
JFK,2013,1,1,6,39.02,26.06,59.37,270,10.36,NA,0,1012,10,2013-01-01T11:00:00Z
"""


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "airports.csv").write_text(AIRPORTS)
    (tmp_path / "weather.csv").write_text(WEATHER)
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", FLIGHTS)
    return tmp_path


def test_flights_and_weather_become_events_in_order_of_time(tables: Path) -> None:
    year = load_year(tables)
    assert (year.departures, year.arrivals, year.cancellations, year.observations, year.events) == (4, 3, 1, 1, 9)
    assert [(event.attributes["time"], event.type, event.tags[2:3]) for event in year] == [
        ("2013-01-01T11:00:00Z", "WeatherObserved", ()),
        ("2013-01-01T11:00:00Z", "FlightDeparted", ("flight:B62",)),
        ("2013-01-01T12:00:00Z", "FlightArrived", ("flight:B62",)),
        ("2013-01-01T12:00:00Z", "FlightCancelled", ("flight:B63",)),
        ("2013-01-01T13:00:00Z", "FlightDeparted", ("flight:B64",)),
        ("2013-01-01T14:00:00Z", "FlightDeparted", ("flight:B65",)),
        ("2013-01-01T17:30:00Z", "FlightArrived", ("flight:B65",)),  # 13:30 in Puerto Rico
        ("2013-01-02T04:40:00Z", "FlightDeparted", ("flight:UA1",)),
        ("2013-01-02T10:45:00Z", "FlightArrived", ("flight:UA1",)),  # 02:45 in Los Angeles, the day after
    ]


def test_a_log_takes_them_as_they_are(tables: Path) -> None:
    events = list(load_year(tables))
    columns = check_append(events, LogSettings().event_bytes_max)
    assert list(columns.tags) == [event.tags for event in events]
    assert len({event.id for event in events}) == len(events)


def test_a_flight_is_tagged_with_what_decisions_ask_for(tables: Path) -> None:
    departed = load_year(tables).first(2)[1]
    assert departed.tags == ("carrier:B6", "dest:BOS", "flight:B62", "origin:JFK", "tail:N2")
    assert departed.data == b'{"scheduled":"2013-01-01T11:00:00Z","delay_min":0}'


def test_a_flight_without_aircraft_has_no_tail(tables: Path) -> None:
    (cancelled,) = [event for event in load_year(tables) if event.type == "FlightCancelled"]
    assert cancelled.tags == ("carrier:B6", "dest:BOS", "flight:B63", "origin:JFK")


def test_timestamps_are_rfc_3339() -> None:
    assert timestamp(22_616_640) == "2013-01-01T00:00:00Z"
