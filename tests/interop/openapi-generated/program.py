"""Appends an event to a log, and prints the data of all that is read."""

import sys

from openapi_client import ApiClient, Append, Configuration, Event, EventsApi, Query, Read

url, log = sys.argv[1:]
events = EventsApi(ApiClient(Configuration(host=url)))
events.append(log, Append(events=[Event(type="A", data="by urllib3")]))
for each in events.read(log, Read(query=Query(all=True))):
    print(each.sequence_number, each.event.data)
