"""Training, evaluation and inference on mmengine's Runner."""
