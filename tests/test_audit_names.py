"""Every rule of the grammar of kernel names reads a real name, whole."""

from __future__ import annotations

import dataclasses

import pytest

from wavescope.audit.names import KINDS, DecodedName, Rule, decode, rules

EXAMPLES = [(rule, dict(example)) for rule in rules() for example in rule.examples]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES, ids=lambda value: getattr(value, "family", None))
def test_a_rule_reads_its_examples(rule: Rule, example: dict[str, object]) -> None:
    said = {key: value for key, value in example.items() if key != "name"}
    expected = DecodedName(family=rule.family, kind=rule.kind, **said)  # type: ignore[arg-type]
    assert decode(str(example["name"])) == expected


def test_every_rule_has_an_example_and_a_known_kind() -> None:
    for rule in rules():
        assert rule.examples, rule.family
        assert rule.kind in KINDS
    assert len({rule.family for rule in rules()}) == len(rules())


def test_a_column_major_tile_lies_across_a_row_major_matrix() -> None:
    name = decode("nvjet_sm90_hsh_168x128_64x5_1x2_h_bz_TNN")
    assert name is not None
    assert (name.row_tile, name.column_tile, name.cluster) == (128, 168, 2)
    name = decode("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_execute_kernel")
    assert name is not None
    assert (name.row_tile, name.column_tile, name.cluster) == (64, 256, None)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "nvjet_sm90_tst_256x128_64x4_h_bz_TNT",  # no cluster
        "nvjet_sm90_tst_0x128_64x4_1x2_h_bz_TNT",
        "void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int)",
        "triton_poi_fused_add_cos_sin_0",
        "my_128x128_kernel",
    ],
)
def test_other_names_say_nothing(name: str) -> None:
    assert decode(name) is None


def test_a_very_long_name_is_read_quickly_and_only_so_far() -> None:
    assert decode("void f<" + "cute::tuple<cute::C<1>, " * 200_000) is None


def test_a_decoded_name_without_a_tile_is_still_a_kind() -> None:
    found = decode("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    assert found is not None
    assert dataclasses.asdict(found) == {
        **dataclasses.asdict(DecodedName(family="nccl", kind="communication")),
    }
