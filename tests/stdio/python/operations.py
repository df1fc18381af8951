"""What both hosts share."""

from collections.abc import Awaitable
from typing import Any


def perform(client: Any, operation: dict[str, Any]) -> Awaitable[Any]:
    """The sessions name operations as the SDK names its methods, with the arguments in order."""
    name, *arguments = operation.values()
    return getattr(client, name)(*arguments)
