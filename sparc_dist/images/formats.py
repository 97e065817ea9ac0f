"""Which files are images: by the suffix of their name, and by their content."""

from importlib.util import find_spec

#: The suffixes of photos that Pillow reads only with the package pillow-heif, as phones make them.
HEIC = (".heic", ".heif")
#: Whether that package is installed.
READS_HEIC = find_spec("pillow_heif") is not None
#: The suffixes of files that are taken for images.
SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif"),
    *(HEIC if READS_HEIC else ()),
)

#: The formats that are tried on a file, whatever its name. Left out: PostScript, which Pillow would
#: pass to Ghostscript to execute; icons, whose true size is known only after decoding; and formats
#: that nobody uses for photos.
FORMATS = (
    "JPEG",
    "PNG",
    "GIF",
    "WEBP",
    "TIFF",
    "BMP",
    "DIB",
    "PPM",
    "TGA",
    "PCX",
    "JPEG2000",
    "AVIF",
    "HEIF",
)

#: How files of the formats begin that are decoded in the process that reads them.
COMMON = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"RIFF")
