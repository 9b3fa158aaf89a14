"""Settings as pydantic models, with errors in this project's form."""

from __future__ import annotations

from typing import Any, Self

import pydantic

from autopipe.errors import ConfigError, near, shortened

LATER: dict[str, pydantic.JsonValue] = {"later": True}
"""Metadata of a setting that came later: at its default it counts in no key, so those from before hold."""


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

    def first_known(self) -> dict[str, Any]:
        """Return the settings as plain values, without those that came later and are at their defaults."""
        later = {name: field for name, field in type(self).model_fields.items() if field.json_schema_extra == LATER}
        plain = self.model_dump(mode="json")
        return {name: value for name, value in plain.items() if name not in later or value != later[name].default}


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
