"""Pictures of scenes, predictions and trainings, and the report that shows them."""
