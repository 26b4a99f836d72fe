"""Whether the parser of the board's TensorRT imports the model that edgekit sends to the board; a
model that it refuses is not calibrated, placed or built.
"""

from __future__ import annotations

from edgekit.dla.judge import release_notes
from edgekit.network.model import Model
from edgekit.parsing.nvidia import ParserWord, ask_parser
from edgekit.parsing.table import AFTER_REWRITES, AS_GIVEN, Parse, parse_check
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.load import named, source, translated
from edgekit.pipeline.steps.translation import is_typed


def sent(context: Context) -> Model:
    """Returns the model that the board's parser gets, before the rewrites.

    That is what a Q/DQ model was translated to, unless TensorRT builds from the Q/DQ model itself.
    The rewrites need not be waited for: they write only operators that every release imports.
    """
    typed = is_typed(context.target, context.tensorrt, context.file.precision)
    return named(context) if typed else source(context)


@computed(translated)
def parse(context: Context, release: str = "") -> Parse:
    """Returns what the parser of ``release`` makes of the model; the planned release when empty."""
    model = sent(context)
    return parse_check(
        model.graph,
        release or context.tensorrt,
        context.target,
        plugins=context.file.model.plugins,
        model=AS_GIVEN if model is named(context) else AFTER_REWRITES,
    )


@computed(translated, "parser")
def parser_word(context: Context) -> ParserWord | None:
    """Returns what NVIDIA's own parser says of the model, and notes it; None if not asked for.

    Raises:
        UsageError: "parser.missing".
        BuildError: NVIDIA's parser gives no answer.
    """
    if not context.file.parser:
        return None
    context.update(0, 0, "asking NVIDIA's parser")
    word = ask_parser(sent(context))
    context.note(word.note(parse(context)))
    return word


def note_parse(context: Context) -> None:
    """Notes that the board cannot parse the model, for a step that works without TensorRT."""
    found = parse(context)
    if not found.ok:
        error = found.refusal()
        context.note(f"{error.message}; what to do: {error.hint}")


def require_parse(context: Context, release: str = "") -> None:
    """Refuses a model that the parser does not import; NVIDIA's own parser adds its word.

    Notes what a person should know of the planned release.

    Args:
        context: The configuration.
        release: The board's own TensorRT, where it was asked; the planned release when empty.

    Raises:
        GateError: "model.parse".
        UsageError: "parser.missing".
        BuildError: NVIDIA's parser gives no answer.
    """
    context.note(*release_notes(context.target, context.tensorrt))
    found = parse(context, release)
    if not found.ok:
        raise found.refusal()
    parser_word(context)
