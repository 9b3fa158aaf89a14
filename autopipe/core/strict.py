"""Settings as pydantic models, with errors in this project's form."""

from __future__ import annotations

from typing import Any, Self

import pydantic

from autopipe.errors import ConfigError, near, shortened


class Strict(pydantic.BaseModel):
    """Settings that never change, of exactly the types they are declared with; an error is one sentence.

    Raises:
        ConfigError: a setting is missing, unknown or wrong.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _clear_errors(cls, value: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        """Turn pydantic's report into one sentence in this project's form."""
        try:
            return handler(value)
        except pydantic.ValidationError as error:
            raise ConfigError(_sentence(cls, error)) from None


def _sentence(cls: type[pydantic.BaseModel], error: pydantic.ValidationError) -> str:
    found = error.errors(include_url=False)
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])  # what is missing, misspelt
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = list(cls.model_fields)
        return f"`{cls.__name__}` has no key `{key}`; it takes {', '.join(known)}.{near(key, known)}"
    if first["type"] == "missing":
        return f"`{cls.__name__}` needs `{key}`, which was not given."
    if not key:
        return f"A `{cls.__name__}` must be an object of that class, but got {shortened(first['input'])}."
    return f"`{key}` of `{cls.__name__}` is wrong: {first['msg']}, but got {key}={shortened(first['input'])}."
