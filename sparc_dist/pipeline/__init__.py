"""The distributed run. Ray lives here and nowhere else."""
