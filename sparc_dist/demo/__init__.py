"""A demo that needs no download: generated scenes and a tiny CLIP trained on them."""
