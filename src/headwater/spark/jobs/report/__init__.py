"""The parts of the pipeline `report`: Spark gathers facts, and pure functions make a page of them."""
