"""The bundled model: a tiny CLIP, trained on the demo's drawn scenes (``demo.train``)."""
