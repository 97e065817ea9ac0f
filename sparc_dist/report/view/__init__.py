"""The viewer: a web server on loopback for one run, its report, its images and reviews.

Belongs here: what `sparc-dist view` shows. Does not: the files of a report (``report``), choosing
images to ask about and fitting decisions (``runs``). Imports neither Ray nor torch.
"""
