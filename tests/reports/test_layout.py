from hypothesis import given
from hypothesis import strategies as st

from edgekit.reports.html.graph import BOX, SEGMENT_BOX, layout_by_device, layout_by_rank, shorten


def overlaps(at, box):
    """Returns pairs of boxes that cover each other."""
    order = sorted(at.items(), key=lambda item: item[1])
    return [
        (a, b)
        for i, (a, (x, y)) in enumerate(order)
        for b, (u, v) in order[i + 1 :]
        if abs(u - x) < box[0] and abs(v - y) < box[1]
    ]


graphs = st.integers(1, 60).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=120),
    )
)


@given(graphs)
def test_layers_never_cover_each_other(graph):
    count, edges = graph
    found = layout_by_rank(range(count), edges)
    assert set(found.at) == set(range(count))
    assert overlaps(found.at, BOX) == []
    for x, y in found.at.values():
        assert -0.01 <= x <= found.width - BOX[0] + 0.01
        assert 0 <= y <= found.height - BOX[1]


@given(graphs)
def test_segments_stand_in_their_lanes_and_after_what_they_read(graph):
    count, edges = graph
    lanes = ["GPU", "DLA0", "DLA1"]
    devices = {i: lanes[i * i % 3] for i in range(count)}
    found = layout_by_device(devices, lanes, edges)
    assert overlaps(found.at, SEGMENT_BOX) == []
    row = lambda y: sum(turn < y for turn in found.turns)  # noqa: E731
    for segment, (x, y) in found.at.items():
        lane = next(one for one in found.lanes if one[1] < y < one[1] + one[3])
        assert lane[4] == devices[segment]
        assert 0 <= x <= found.width - SEGMENT_BOX[0]
    for start, end in edges:
        if start < end:
            (x, y), (u, v) = found.at[start], found.at[end]
            assert (row(y), x) < (row(v), u)


@given(graphs, st.integers(1, 3))
def test_a_folded_row_has_only_lanes_in_which_something_stands(graph, across):
    count, edges = graph
    devices = {i: ["GPU", "DLA0", "DLA1"][i * i % 3] for i in range(count)}
    found = layout_by_device(devices, ["GPU", "DLA0", "DLA1"], edges, across=across)
    for _, top, _, high, device in found.lanes:
        inside = [one for one, (_, y) in found.at.items() if top < y < top + high]
        assert inside
        assert {devices[one] for one in inside} == {device}
    # rows neither touch nor leave the picture
    for turn in found.turns[1:]:
        assert not any(top <= turn <= top + high for _, top, _, high, _ in found.lanes)
    assert list(found.at) == list(devices)
    assert max(top + high for _, top, _, high, _ in found.lanes) <= found.height


def test_a_long_chain_is_a_picture_and_not_a_thread():
    found = layout_by_rank(range(2000), [(i, i + 1) for i in range(1999)])
    assert 1 < found.width / found.height < 3


def test_a_name_keeps_its_end_and_wide_letters_count_twice():
    assert shorten("conv1") == "conv1"
    assert shorten("a/very/long/path/to/some/layer/conv_12").endswith("/layer/conv_12")
    assert len(shorten("a" * 100)) == 27
    assert len(shorten("模" * 100)) == 14
