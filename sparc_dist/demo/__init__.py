"""The demo: drawn scenes with labels and captions, and training the bundled model on them.

Belongs here: drawing, the demo's inputs, ``demo.train``. Does not: the model itself
(``backbones.tiny``). Uses: ``backbones.tiny``, ``config``.
"""
