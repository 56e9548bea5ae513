"""What the pipeline `report` is made of: facts gathered by Spark, and a page that pure functions make of them."""
