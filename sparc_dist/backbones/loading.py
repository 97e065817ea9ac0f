"""Models whose weights come from a file: none are drawn at random first."""

from __future__ import annotations

from typing import Any

from torch.nn import init
from torch.overrides import TorchFunctionMode

#: What fills a tensor with random numbers.
DRAWS = {
    init.kaiming_uniform_,
    init.normal_,
    init.trunc_normal_,
    init.uniform_,
    init.xavier_uniform_,
}


class NoDraws(TorchFunctionMode):
    """Leaves the tensors of new models as they are, which saves half the time of loading one.

    Only for models whose weights are then loaded, all of them.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls a function of torch, unless it draws."""
        if func in DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
