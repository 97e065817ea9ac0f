"""How each class of the generated scenes is drawn, in the unit square with y pointing down."""

from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image, ImageDraw

Colour = tuple[int, int, int]
Point = tuple[float, float]

RED, ORANGE, YELLOW = (200, 40, 40), (230, 130, 40), (235, 205, 60)
GREEN, TEAL, BLUE = (60, 140, 60), (50, 150, 150), (60, 90, 190)
PURPLE, PINK, BROWN = (130, 70, 160), (230, 140, 170), (125, 80, 45)
WHITE, GREY, BLACK = (235, 235, 230), (130, 130, 135), (35, 35, 40)
ANY = (RED, ORANGE, YELLOW, GREEN, TEAL, BLUE, PURPLE, PINK, BROWN, WHITE, GREY, BLACK)
FUR = (BROWN, BLACK, WHITE, GREY, (190, 140, 80), (160, 100, 50))


class Pen:
    """Draws in unit coordinates on a transparent square canvas."""

    def __init__(self, pixels: int, rng: np.random.Generator) -> None:
        self.image = Image.new("RGBA", (pixels, pixels))
        self.rng = rng
        self._draw = ImageDraw.Draw(self.image)
        self._pixels = pixels

    def colour(self, choices: Sequence[Colour]) -> Colour:
        """Returns one of the colours with some noise, so that no two objects have the same."""
        base = choices[int(self.rng.integers(len(choices)))]
        red, green, blue = np.clip(np.add(base, self.rng.normal(0, 18, 3)), 0, 255).astype(int)
        return int(red), int(green), int(blue)

    def chance(self, probability: float) -> bool:
        """Returns True with the given probability."""
        return bool(self.rng.random() < probability)

    def between(self, low: float, high: float) -> float:
        """Returns a number drawn uniformly from the range."""
        return float(self.rng.uniform(low, high))

    def _scale(self, values: Sequence[float]) -> list[float]:
        return [value * (self._pixels - 1) for value in values]

    def poly(self, colour: Colour, *points: Point) -> None:
        """Draws a filled polygon."""
        self._draw.polygon([(x, y) for x, y in map(self._scale, points)], fill=colour)

    def box(self, colour: Colour, x0: float, y0: float, x1: float, y1: float) -> None:
        """Draws a filled rectangle."""
        self._draw.rectangle(self._scale((x0, y0, x1, y1)), fill=colour)

    def oval(self, colour: Colour, x0: float, y0: float, x1: float, y1: float) -> None:
        """Draws a filled ellipse."""
        self._draw.ellipse(self._scale((x0, y0, x1, y1)), fill=colour)

    def disc(self, colour: Colour, x: float, y: float, radius: float) -> None:
        """Draws a filled circle."""
        self.oval(colour, x - radius, y - radius, x + radius, y + radius)

    def ring(self, colour: Colour, x: float, y: float, radius: float, thick: float) -> None:
        """Draws the outline of a circle."""
        bounds = self._scale((x - radius, y - radius, x + radius, y + radius))
        self._draw.ellipse(bounds, outline=colour, width=self._width(thick))

    def half(self, colour: Colour, x0: float, y0: float, x1: float, y1: float) -> None:
        """Draws the upper half of an ellipse."""
        self._draw.pieslice(self._scale((x0, y0, x1, y1)), 180, 360, fill=colour)

    def line(self, colour: Colour, thick: float, *points: Point) -> None:
        """Draws a line through the points."""
        scaled = [(x, y) for x, y in map(self._scale, points)]
        self._draw.line(scaled, fill=colour, width=self._width(thick))

    def _width(self, thick: float) -> int:
        return max(1, round(thick * self._pixels))


def shade(colour: Colour, factor: float) -> Colour:
    """Returns the colour made darker (factor < 1) or lighter (factor > 1)."""
    red, green, blue = (min(255, int(channel * factor)) for channel in colour)
    return red, green, blue


def _car(pen: Pen) -> None:
    body = pen.colour(ANY)
    roof = pen.between(0.24, 0.34)
    pen.poly(body, (0.2, 0.52), (0.32, roof), (0.7, roof), (0.84, 0.52))
    pen.poly((170, 205, 225), (0.28, 0.5), (0.36, roof + 0.05), (0.49, roof + 0.05), (0.49, 0.5))
    pen.poly((170, 205, 225), (0.53, 0.5), (0.53, roof + 0.05), (0.67, roof + 0.05), (0.75, 0.5))
    pen.box(body, 0.03, 0.5, 0.97, 0.7)
    for x in (0.25, 0.76):
        pen.disc(BLACK, x, 0.7, 0.11)
        pen.disc(GREY, x, 0.7, 0.05)


def _bus(pen: Pen) -> None:
    body = pen.colour((RED, YELLOW, BLUE, WHITE, GREEN))
    pen.box(body, 0.03, 0.18, 0.97, 0.76)
    for column in range(4):
        x = 0.08 + column * 0.22
        pen.box((165, 200, 220), x, 0.26, x + 0.17, 0.46)
    pen.box(shade(body, 0.7), 0.03, 0.54, 0.97, 0.59)
    for x in (0.22, 0.78):
        pen.disc(BLACK, x, 0.77, 0.09)


def _bicycle(pen: Pen) -> None:
    frame, tyre = pen.colour(ANY), pen.colour((BLACK, GREY))
    for x in (0.22, 0.78):
        pen.ring(tyre, x, 0.65, 0.2, 0.045)
    pen.line(frame, 0.05, (0.22, 0.65), (0.38, 0.38), (0.68, 0.38), (0.48, 0.65), (0.22, 0.65))
    pen.line(frame, 0.05, (0.48, 0.65), (0.36, 0.3))
    pen.line(frame, 0.05, (0.78, 0.65), (0.66, 0.26), (0.76, 0.24))
    pen.line(BLACK, 0.06, (0.28, 0.3), (0.43, 0.3))


def _traffic_light(pen: Pen) -> None:
    pen.box(pen.colour((GREY, BLACK)), 0.46, 0.55, 0.54, 1.0)
    pen.box(pen.colour((BLACK, (60, 70, 40))), 0.34, 0.03, 0.66, 0.62)
    lit = int(pen.rng.integers(3))
    for lamp, colour in enumerate(((255, 60, 50), (255, 210, 60), (70, 240, 100))):
        pen.disc(colour if lamp == lit else shade(colour, 0.4), 0.5, 0.14 + lamp * 0.19, 0.085)


def _fire_hydrant(pen: Pen) -> None:
    body = pen.colour((RED, RED, YELLOW, ORANGE))
    pen.box(body, 0.34, 0.3, 0.66, 0.9)
    pen.half(body, 0.32, 0.1, 0.68, 0.5)
    pen.box(shade(body, 0.75), 0.2, 0.42, 0.8, 0.56)
    pen.box(shade(body, 0.75), 0.26, 0.86, 0.74, 0.97)
    pen.disc(shade(body, 1.3), 0.5, 0.49, 0.09)


def _house(pen: Pen) -> None:
    wall, roof = pen.colour(ANY), pen.colour((BROWN, RED, GREY, BLACK))
    pen.box(wall, 0.1, 0.42, 0.9, 0.98)
    pen.poly(roof, (0.02, 0.44), (0.5, 0.06), (0.98, 0.44))
    pen.box(pen.colour((BROWN, BLUE, BLACK)), 0.42, 0.64, 0.58, 0.98)
    for x in (0.18, 0.66):
        pen.box((190, 215, 225), x, 0.54, x + 0.16, 0.72)


def _tree(pen: Pen) -> None:
    leaves = pen.colour((GREEN, (90, 150, 50), (40, 100, 50), (180, 120, 40)))
    pen.box(pen.colour((BROWN,)), 0.44, 0.55, 0.56, 1.0)
    if pen.chance(0.35):
        for top in (0.02, 0.22, 0.42):
            pen.poly(leaves, (0.5, top), (0.18, top + 0.32), (0.82, top + 0.32))
        return
    for x, y in ((0.34, 0.42), (0.66, 0.42), (0.5, 0.26)):
        pen.disc(shade(leaves, pen.between(0.85, 1.15)), x, y, 0.24)


def _person(pen: Pen) -> None:
    skin = pen.colour(((235, 195, 165), (200, 150, 110), (140, 95, 65), (90, 60, 45)))
    shirt, trousers = pen.colour(ANY), pen.colour((BLUE, BLACK, GREY, BROWN))
    reach = pen.between(0.3, 0.6)
    for foot in (0.4, 0.6):
        pen.line(trousers, 0.1, (0.5, 0.58), (foot, 0.99))
    pen.line(skin, 0.06, (0.25, reach), (0.5, 0.32), (0.75, 1 - reach))
    pen.box(shirt, 0.38, 0.26, 0.62, 0.62)
    pen.disc(skin, 0.5, 0.14, 0.12)
    pen.half(pen.colour(FUR), 0.37, 0.01, 0.63, 0.22)


def _animal(pen: Pen, coat: Colour, back: float, legs: float, leg_colour: Colour) -> None:
    """Draws a trunk and four legs, which the farm animals and the dog share to look alike."""
    for x in (0.24, 0.36, 0.62, 0.73):
        pen.box(leg_colour, x, 0.6, x + legs, 0.96)
    pen.oval(coat, 0.15, back, 0.82, 0.74)


def _dog(pen: Pen) -> None:
    coat = pen.colour(FUR)
    _animal(pen, coat, 0.4, 0.08, coat)
    pen.line(coat, 0.06, (0.2, 0.5), (0.05, 0.26))
    pen.disc(coat, 0.82, 0.34, 0.14)
    pen.box(coat, 0.84, 0.34, 0.99, 0.45)
    pen.disc(BLACK, 0.97, 0.36, 0.03)
    pen.oval(shade(coat, 0.6), 0.67, 0.24, 0.79, 0.5)


def _cat(pen: Pen) -> None:
    coat = pen.colour((*FUR, ORANGE))
    pen.line(coat, 0.07, (0.66, 0.9), (0.9, 0.82), (0.93, 0.5))
    pen.oval(coat, 0.24, 0.42, 0.76, 0.98)
    pen.disc(coat, 0.5, 0.32, 0.2)
    for x in (0.32, 0.54):
        pen.poly(coat, (x, 0.24), (x + 0.03, 0.02), (x + 0.15, 0.18))
    for x in (0.42, 0.58):
        pen.disc((190, 220, 70), x, 0.3, 0.045)
    pen.poly(PINK, (0.46, 0.38), (0.54, 0.38), (0.5, 0.43))


def _sheep(pen: Pen) -> None:
    wool, face = pen.colour((WHITE, WHITE, GREY)), pen.colour((BLACK, BROWN, WHITE))
    _animal(pen, wool, 0.32, 0.07, face)
    for x, y in ((0.25, 0.45), (0.4, 0.36), (0.57, 0.36), (0.72, 0.45), (0.35, 0.62), (0.6, 0.62)):
        pen.disc(shade(wool, pen.between(0.92, 1.08)), x, y, 0.14)
    pen.oval(face, 0.76, 0.3, 0.96, 0.58)


def _horse(pen: Pen) -> None:
    coat, mane = pen.colour(FUR), pen.colour((BLACK, BROWN, WHITE))
    _animal(pen, coat, 0.38, 0.07, coat)
    pen.line(mane, 0.07, (0.18, 0.48), (0.07, 0.8))
    pen.poly(coat, (0.64, 0.5), (0.78, 0.1), (0.88, 0.14), (0.82, 0.6))
    pen.poly(coat, (0.76, 0.08), (0.98, 0.26), (0.93, 0.34), (0.78, 0.26))
    pen.line(mane, 0.07, (0.64, 0.46), (0.77, 0.06))


def _sofa(pen: Pen) -> None:
    cloth = pen.colour(ANY)
    pen.box(shade(cloth, 0.85), 0.1, 0.26, 0.9, 0.7)
    pen.box(cloth, 0.15, 0.54, 0.49, 0.72)
    pen.box(cloth, 0.51, 0.54, 0.85, 0.72)
    pen.box(shade(cloth, 0.7), 0.03, 0.42, 0.16, 0.82)
    pen.box(shade(cloth, 0.7), 0.84, 0.42, 0.97, 0.82)
    pen.box(shade(cloth, 0.6), 0.1, 0.72, 0.9, 0.82)


def _lamp(pen: Pen) -> None:
    stand = pen.colour((BLACK, BROWN, GREY))
    pen.box(stand, 0.47, 0.35, 0.53, 0.94)
    pen.oval(stand, 0.3, 0.9, 0.7, 0.99)
    cloth = pen.colour((YELLOW, WHITE, ORANGE))
    pen.poly(cloth, (0.36, 0.04), (0.64, 0.04), (0.8, 0.4), (0.2, 0.4))


def _clock(pen: Pen) -> None:
    rim = pen.colour(ANY)
    pen.disc(rim, 0.5, 0.5, 0.46)
    pen.disc((240, 240, 230), 0.5, 0.5, 0.37)
    for length, turn in ((0.2, pen.between(0, 6.28)), (0.32, pen.between(0, 6.28))):
        tip = (0.5 + length * float(np.sin(turn)), 0.5 - length * float(np.cos(turn)))
        pen.line(BLACK, 0.05, (0.5, 0.5), tip)


def _potted_plant(pen: Pen) -> None:
    leaf = pen.colour((GREEN, (90, 150, 50), TEAL))
    for x in (0.12, 0.3, 0.5, 0.7, 0.88):
        tip = (x, pen.between(0.03, 0.25) + abs(x - 0.5) * 0.5)
        pen.poly(leaf, (0.43, 0.62), tip, (0.57, 0.62))
    pot = pen.colour((ORANGE, BROWN, WHITE, BLUE))
    pen.poly(pot, (0.26, 0.6), (0.74, 0.6), (0.66, 0.98), (0.34, 0.98))


def _bottle(pen: Pen) -> None:
    glass = pen.colour((GREEN, BROWN, BLUE, TEAL, RED))
    pen.box(glass, 0.43, 0.06, 0.57, 0.35)
    pen.poly(glass, (0.43, 0.28), (0.57, 0.28), (0.68, 0.46), (0.32, 0.46))
    pen.box(glass, 0.32, 0.45, 0.68, 0.98)
    pen.box(pen.colour((WHITE, YELLOW, PINK)), 0.32, 0.58, 0.68, 0.8)
    pen.box(pen.colour((BLACK, RED, WHITE)), 0.42, 0.02, 0.58, 0.1)


def _cup(pen: Pen) -> None:
    china = pen.colour(ANY)
    pen.ring(china, 0.74, 0.52, 0.2, 0.07)
    pen.poly(china, (0.14, 0.24), (0.74, 0.24), (0.66, 0.88), (0.22, 0.88))
    pen.oval(shade(china, 0.6), 0.14, 0.16, 0.74, 0.32)


def _apple(pen: Pen) -> None:
    skin = pen.colour((RED, RED, GREEN, YELLOW))
    pen.disc(skin, 0.36, 0.58, 0.32)
    pen.disc(skin, 0.64, 0.58, 0.32)
    pen.line(BROWN, 0.06, (0.5, 0.36), (0.55, 0.1))
    pen.oval(pen.colour((GREEN,)), 0.54, 0.1, 0.84, 0.25)


def _banana(pen: Pen) -> None:
    skin = pen.colour((YELLOW, YELLOW, (190, 200, 70)))
    outer = [(0.06, 0.3), (0.12, 0.58), (0.34, 0.8), (0.64, 0.82), (0.94, 0.62)]
    inner = [(0.92, 0.52), (0.66, 0.58), (0.42, 0.52), (0.26, 0.38), (0.16, 0.18)]
    pen.poly(skin, *outer, *inner)
    pen.line(BROWN, 0.07, (0.1, 0.28), (0.15, 0.16))


def _cake(pen: Pen) -> None:
    sponge, icing = pen.colour((BROWN, (225, 190, 130))), pen.colour((PINK, WHITE, YELLOW, BROWN))
    pen.box(sponge, 0.12, 0.46, 0.88, 0.9)
    pen.box(icing, 0.12, 0.42, 0.88, 0.56)
    pen.box(icing, 0.12, 0.68, 0.88, 0.75)
    for x in (0.25, 0.5, 0.75):
        pen.box(pen.colour(ANY), x - 0.025, 0.2, x + 0.025, 0.43)
        pen.disc((255, 200, 60), x, 0.16, 0.05)


def _pizza(pen: Pen) -> None:
    pen.disc(pen.colour(((200, 140, 70),)), 0.5, 0.5, 0.47)
    pen.disc(pen.colour((YELLOW, (235, 180, 90))), 0.5, 0.5, 0.39)
    topping = pen.colour((RED, GREEN, BROWN))
    for turn in range(6):
        x, y = 0.25 * np.cos(turn * 1.05), 0.25 * np.sin(turn * 1.05)
        pen.disc(topping, 0.5 + float(x), 0.5 + float(y), 0.075)


def _boat(pen: Pen) -> None:
    pen.poly(pen.colour(ANY), (0.04, 0.7), (0.96, 0.7), (0.78, 0.94), (0.2, 0.94))
    pen.box(pen.colour((BROWN,)), 0.46, 0.06, 0.51, 0.72)
    sail = pen.colour((WHITE, WHITE, RED, YELLOW, BLUE))
    pen.poly(sail, (0.54, 0.08), (0.9, 0.64), (0.54, 0.64))
    pen.poly(shade(sail, 0.85), (0.43, 0.16), (0.16, 0.64), (0.43, 0.64))


def _bird(pen: Pen) -> None:
    feather = pen.colour((*ANY, WHITE, BLUE))
    lift = pen.between(0.05, 0.3)
    pen.oval(feather, 0.2, 0.42, 0.76, 0.7)
    pen.poly(feather, (0.26, 0.56), (0.02, 0.42), (0.04, 0.66))
    pen.disc(feather, 0.76, 0.42, 0.13)
    pen.poly(ORANGE, (0.87, 0.38), (0.99, 0.44), (0.87, 0.48))
    pen.poly(shade(feather, 0.7), (0.36, 0.52), (0.3, lift), (0.62, 0.52))
    pen.line(ORANGE, 0.03, (0.48, 0.68), (0.48, 0.86))


def _umbrella(pen: Pen) -> None:
    cloth, other = pen.colour(ANY), pen.colour(ANY)
    pen.line(pen.colour((BROWN, BLACK)), 0.04, (0.5, 0.1), (0.5, 0.94), (0.62, 0.94))
    pen.half(cloth, 0.04, 0.06, 0.96, 0.9)
    pen.poly(other, (0.5, 0.06), (0.34, 0.48), (0.66, 0.48))


def _fish(pen: Pen) -> None:
    scales = pen.colour((ORANGE, BLUE, GREY, TEAL, YELLOW, RED))
    pen.poly(scales, (0.28, 0.5), (0.03, 0.26), (0.03, 0.74))
    pen.poly(shade(scales, 0.75), (0.42, 0.34), (0.6, 0.14), (0.72, 0.34))
    pen.oval(scales, 0.18, 0.28, 0.97, 0.72)
    pen.disc(WHITE, 0.8, 0.44, 0.06)
    pen.disc(BLACK, 0.81, 0.44, 0.03)


def _kite(pen: Pen) -> None:
    cloth, other = pen.colour(ANY), pen.colour(ANY)
    pen.line(GREY, 0.03, (0.5, 0.66), (0.38, 0.78), (0.58, 0.88), (0.46, 0.99))
    pen.poly(cloth, (0.5, 0.02), (0.82, 0.28), (0.5, 0.7), (0.18, 0.28))
    pen.poly(other, (0.5, 0.02), (0.82, 0.28), (0.5, 0.28))
    pen.poly(other, (0.5, 0.7), (0.18, 0.28), (0.5, 0.28))


def _bench(pen: Pen) -> None:
    wood = pen.colour((BROWN, GREEN, GREY, (170, 120, 70)))
    for x in (0.12, 0.82):
        pen.box(pen.colour((BLACK, GREY)), x, 0.3, x + 0.06, 0.86)
    for y in (0.3, 0.42, 0.58):
        pen.box(wood, 0.04, y, 0.96, y + 0.075)


_PAINTERS: dict[str, Callable[[Pen], None]] = {
    "car": _car, "bus": _bus, "bicycle": _bicycle, "traffic light": _traffic_light,
    "fire hydrant": _fire_hydrant, "house": _house, "tree": _tree, "person": _person,
    "dog": _dog, "cat": _cat, "sheep": _sheep, "horse": _horse, "sofa": _sofa, "lamp": _lamp,
    "clock": _clock, "potted plant": _potted_plant, "bottle": _bottle, "cup": _cup,
    "apple": _apple, "banana": _banana, "cake": _cake, "pizza": _pizza, "boat": _boat,
    "bird": _bird, "umbrella": _umbrella, "fish": _fish, "kite": _kite, "bench": _bench,
}  # fmt: skip

CLASSES: tuple[str, ...] = tuple(_PAINTERS)


def draw_object(name: str, pixels: int, rng: np.random.Generator) -> Image.Image:
    """Returns a square RGBA image, ``pixels`` wide, of one object without a background."""
    pen = Pen(pixels, rng)
    _PAINTERS[name](pen)
    return pen.image
