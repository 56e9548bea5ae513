"""Archives: logs copied to Delta tables, safely enough that the server may forget what was copied."""
