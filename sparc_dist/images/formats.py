"""Which files are images: by the ending of a name, and by what is in them."""

#: The endings of files that are taken for images.
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")

#: The formats that are tried on a file, whatever its name. Left out: PostScript, a program that
#: Pillow would have Ghostscript run; icons, whose true size shows only when it is too late; and
#: formats in which nobody keeps photos.
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
)
