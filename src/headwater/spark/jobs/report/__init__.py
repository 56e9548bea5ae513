"""The parts of the pipeline `report`: Spark gathers facts, and pure functions turn them into a page."""
