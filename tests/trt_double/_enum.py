"""Enums as pybind11 makes them: members convert to int, but equal only members of their enum."""

from typing import Any, ClassVar


class EnumType(type):
    """Metaclass: `E(1)`, `E.__members__`; a name the release lacks is an AttributeError."""

    def __call__(cls, value: Any) -> Any:
        """The member of an integer value."""
        if isinstance(value, cls):
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(
                f"{cls.__name__}(value: int): incompatible constructor arguments: {value!r}"
            )
        for member in cls.__members__.values():
            if member.value == value:
                return member
        return cls._make("???", value)

    def _make(cls, name: str, value: int) -> Any:
        member = object.__new__(cls)
        object.__setattr__(member, "_name", name)
        object.__setattr__(member, "_value", value)
        return member


class Member:
    """One member of an enum."""

    __slots__ = ("_name", "_value")
    __members__: ClassVar[dict[str, "Member"]] = {}

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def value(self) -> int:
        """Its number in this release."""
        return self._value

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"can't set attribute {name!r} of {self!r}")

    def __int__(self) -> int:
        return self._value

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and int(self) == int(other)  # type: ignore[call-overload]

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self._name}: {self._value}>"

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self._name}"


def make(name: str, qualname: str, module: str, members: dict[str, int]) -> EnumType:
    """The enum class `name` of the double with these members."""
    made = EnumType(
        name, (Member,), {"__slots__": (), "__module__": module, "__qualname__": qualname}
    )
    table = {key: made._make(key, value) for key, value in members.items()}
    made.__members__ = table
    for key, member in table.items():
        setattr(made, key, member)
    return made
