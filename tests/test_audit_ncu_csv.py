"""Nsight Compute's CSV: both pages, units, separators, and what people save beside them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from audit_profiles import GEMM, RAW, csv_line, details_page, raw_page
from hypothesis import given
from hypothesis import strategies as st

from wavescope.audit import lines, ncu_csv
from wavescope.audit.launches import NULL, Launches, ProfiledDevice
from wavescope.audit.ncu_numbers import Separators, scale
from wavescope.errors import InputError, NoKernels

DATA = Path(__file__).parent / "data" / "h200"


def read_text(tmp_path: Path, content: str | bytes) -> Launches:
    path = tmp_path / "page.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return ncu_csv.read(path)


def row_of(launches: Launches) -> dict[str, object]:
    row = {name: values[0] for name, values in vars(launches).items() if isinstance(values, np.ndarray)}
    return {
        name: value.tolist() if isinstance(value, np.generic | np.ndarray) else value for name, value in row.items()
    }


def test_every_column_of_a_raw_page(tmp_path: Path) -> None:
    launches = read_text(tmp_path, raw_page({}))
    row = row_of(launches)
    assert math.isnan(row.pop("profile_occupancy"))  # type: ignore[arg-type]
    assert row == {
        "name": GEMM,
        "device": 0,
        "stream": 7,
        "start_ns": NULL,
        "duration_ns": 58_240,
        "grid": [2, 66, 1],
        "block": [384, 1, 1],
        "cluster": [2, 1, 1],
        "registers": 168,
        "shared_static": 1024,
        "shared_dynamic": 205020,
        "max_active_clusters": 66,
        "context_sms": NULL,
        "graph": NULL,
        "operator": None,
        "shapes": None,
        "sm_active_avg_over_max": 88489.93 / 93311,
        "sm_active_share": 88489.93 / 97184.74,
        "activity": None,
    }
    assert launches.kind == "ncu csv"
    assert launches.notes == ()
    assert launches.devices == (
        ProfiledDevice(0, "NVIDIA H200", (9, 0), 132, 65536, 233472, 232448, 2048, 1980.0, "profile"),
    )


def test_every_column_of_a_details_page(tmp_path: Path) -> None:
    """The page has the cluster's size only, and no name of the GPU; cycles elapsed are the GPCs'."""
    launches = read_text(tmp_path, details_page({}, {"Duration": ("ns", "60,000")}))
    row = row_of(launches)
    assert row["cluster"] == [2, 1, 1]
    assert (row["registers"], row["shared_static"], row["shared_dynamic"]) == (168, 1024, 205020)
    assert (row["max_active_clusters"], row["stream"]) == (66, 7)
    assert row["sm_active_share"] == 88489.93 / 98554
    assert math.isnan(row["sm_active_avg_over_max"])  # type: ignore[arg-type]
    assert launches.duration_ns.tolist() == [58_240, 60_000]
    assert launches.devices == (ProfiledDevice(0, None, (9, 0), 132, None, None, None, None, None, "profile"),)


@pytest.mark.parametrize(
    ("cell", "unit", "expected"),
    [("58.24", "usecond", 58_240), ("58.24", "us", 58_240), ("1.5", "msecond", 1_500_000), ("2", "parsec", NULL)],
)
def test_units_of_time(tmp_path: Path, cell: str, unit: str, expected: int) -> None:
    page = raw_page({"gpu__time_duration.sum": cell}, units={"gpu__time_duration.sum": unit})
    assert read_text(tmp_path, page).duration_ns[0] == expected


def test_scaled_sizes_are_said_to_be_rounded(tmp_path: Path) -> None:
    metric = "launch__shared_mem_per_block_dynamic"
    launches = read_text(tmp_path, raw_page({metric: "205.02"}, units={metric: "Kbyte/block"}))
    assert launches.shared_dynamic[0] == 205_020
    assert launches.notes == (
        "1 kernel has sizes rounded to a few digits; export with --print-units base for exact ones",
    )


def european(page: str) -> str:
    return page.translate(str.maketrans({",": "\0", ".": ","})).replace("\0", ".")


@pytest.mark.parametrize("make", [raw_page, details_page])
def test_european_separators(tmp_path: Path, make: object) -> None:
    """1.234,5 in the cells; the commas between cells, in extents and names stay."""
    lines_of = make({}).splitlines()  # type: ignore[operator]
    cells = [line.split('","') for line in lines_of]
    numeric = {"58,240", "205,020", "1,024", "88,489.93", "93,311", "97,184.74", "98,554", "1.00", "9.0"}
    swapped = [[european(cell) if cell.strip('"') in numeric else cell for cell in row] for row in cells]
    plain = read_text(tmp_path, "\n".join(lines_of))
    launches = read_text(tmp_path, "\n".join('","'.join(row) for row in swapped))
    assert row_of(launches)["sm_active_share"] == row_of(plain)["sm_active_share"]
    assert launches.duration_ns.tolist() == plain.duration_ns.tolist() == [58_240]
    assert launches.devices == plain.devices


def ambiguous(**kernel: str) -> str:
    """A raw page in which no number tells what its separator is."""
    whole = {
        "sm__cycles_active.avg": "88,489",
        "sm__cycles_elapsed.avg": "97,184",
        "launch__waves_per_multiprocessor": "1",
    }
    return raw_page(whole | kernel)


def test_ambiguous_separators_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_text(tmp_path, ambiguous())
    assert "its numbers are ambiguous: '88,489' may have thousands or decimals" in str(caught.value)
    assert "--print-units base" in str(caught.value)
    assert "LC_ALL=C" in str(caught.value)


def test_the_grid_settles_an_ambiguous_separator(tmp_path: Path) -> None:
    grid = {"Grid Size": "(1056, 1, 1)", "launch__grid_size": "1,056"}
    assert read_text(tmp_path, ambiguous(**grid)).duration_ns[0] == 58_240
    dots = {name: cell.replace(",", ".") for name, (_, cell) in RAW.items() if name.islower() and "," in cell}
    dots |= {"sm__cycles_active.avg": "88.489", "sm__cycles_elapsed.avg": "97.184"}
    page = ambiguous(**dots | {"Grid Size": "(1056, 1, 1)", "launch__grid_size": "1.056"})
    assert read_text(tmp_path, page).duration_ns[0] == 58_240


def test_two_kinds_of_separators_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"two kinds of separators \('88,489.93' and '1.234,5'\)"):
        read_text(tmp_path, raw_page({}, {"sm__cycles_active.avg": "1.234,5"}))


@pytest.mark.parametrize("absent", ["n/a", "", "no data", "nan", "(!) n/a"])
def test_values_that_are_not_there(tmp_path: Path, absent: str) -> None:
    counters = dict.fromkeys(("sm__cycles_active.avg", "gpu__time_duration.sum"), absent)
    launches = read_text(tmp_path, raw_page({}, counters))
    assert launches.duration_ns.tolist() == [58_240, NULL]
    assert np.isnan(launches.sm_active_avg_over_max).tolist() == [False, True]
    assert launches.notes == (
        "1 kernel has no duration; not in any sum of time",
        "1 kernel has no SM activity counted (n/a, or not collected); only estimates for those",
    )


def test_ragged_rows(tmp_path: Path) -> None:
    page = raw_page({}, {}) + '"7","41"\n"8"\n'
    launches = read_text(tmp_path, page)
    assert len(launches) == 2
    assert launches.notes == ("2 lines are too short for the table; left out",)


def test_output_of_programs_between_the_rows(tmp_path: Path) -> None:
    parts = raw_page({}, {}).split("\n")
    noisy = "\n".join(line + '\nstep 3, loss 0.2\n==WARNING== "odd' for line in parts)
    assert len(read_text(tmp_path, noisy)) == 2


def test_two_tables_in_one_file(tmp_path: Path) -> None:
    assert len(read_text(tmp_path, raw_page({}) + details_page({}, {}))) == 3
    assert len(read_text(tmp_path, details_page({}) + details_page({}))) == 2


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings_of_consoles(tmp_path: Path, encoding: str, end: str) -> None:
    page = raw_page({"Kernel Name": "k\u00e4rnel"}).replace("\n", end)
    assert read_text(tmp_path, page.encode(encoding)).name[0] == "k\u00e4rnel"


def test_semicolons_without_quotes(tmp_path: Path) -> None:
    """As a spreadsheet saves it again."""
    columns = (
        "ID",
        "Kernel Name",
        "Block Size",
        "Grid Size",
        "gpu__time_duration.sum",
        "launch__waves_per_multiprocessor",
    )
    page = "\n".join(
        ";".join(row)
        for row in (columns, ("", "", "", "", "ns", ""), ("0", GEMM, "(384, 1, 1)", "(2, 66, 1)", "58.240", "1,5"))
    )
    launches = read_text(tmp_path, page)
    assert (launches.duration_ns[0], launches.grid[0].tolist()) == (58_240, [2, 66, 1])


def test_old_page_without_extents(tmp_path: Path) -> None:
    launches = read_text(
        tmp_path, raw_page({"CC": "7.x"}, without=["Grid Size", "Block Size", "launch__cluster_dim_x"])
    )
    assert launches.grid.tolist() == [[NULL] * 3]
    assert launches.cluster.tolist() == [[2, 1, 1]]


def test_green_context_and_shares_of_a_gpu(tmp_path: Path) -> None:
    assert read_text(tmp_path, raw_page({"launch__sm_count": "114"})).context_sms[0] == 114


def test_permission_only(tmp_path: Path) -> None:
    said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n==WARNING== No kernels were profiled.\n"
    with pytest.raises(NoKernels) as caught:
        read_text(tmp_path, "==PROF== Connected\n" + said)
    assert "this user may not read the GPU's counters (ERR_NVGPUCTRPERM)" in str(caught.value)
    assert "torch.profiler and nsys" in str(caught.value)
    launches = read_text(tmp_path, raw_page({}) + said)
    assert launches.notes[0].startswith("some kernels were not profiled: ERR_NVGPUCTRPERM")


@pytest.mark.parametrize(
    ("content", "error", "problem"),
    [
        (
            "==PROF== Connected\n==ERROR== The application returned 11\n",
            NoKernels,
            "ncu says: ==ERROR== The application",
        ),
        ("==PROF== Connected\n==WARNING== No kernels were profiled.\n", NoKernels, "profiled no kernels"),
        (csv_line(RAW) + "\n", NoKernels, "profiled no kernels"),
        ("==PROF== Connected\n  gemm (2, 66, 1)x(384, 1, 1)\n", InputError, "without a table; run ncu with --csv"),
        ("m,n,k\n1,2,3\n", InputError, "neither a PyTorch trace nor a table of Nsight Compute"),
        ("x" * 3_000_000, InputError, "neither a PyTorch trace nor a table"),
    ],
)
def test_files_without_kernels(tmp_path: Path, content: str, error: type[InputError], problem: str) -> None:
    with pytest.raises(error) as caught:
        read_text(tmp_path, content)
    assert problem in str(caught.value)
    assert type(caught.value) is error


def test_a_line_of_unbelievable_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 1 << 20)
    with pytest.raises(InputError, match="a line of more than 1 million characters"):
        read_text(tmp_path, "x" * 3_000_000)


def test_a_cell_of_unbelievable_length(tmp_path: Path) -> None:
    with pytest.raises(NoKernels):
        read_text(tmp_path, raw_page({"Kernel Name": "x" * 200_000}))


def test_recorded_corpus() -> None:
    """Rows 2304x2304x4096 fp16 and the first; values as the file prints them."""
    launches = ncu_csv.read(DATA / "corpus_ncu_raw.csv")
    assert len(launches) == 40
    assert launches.name[0] == "nvjet_sm90_tst_48x64_64x15_2x4_h_bz_splitK_TNN"
    assert launches.duration_ns[0] == 7936
    assert launches.sm_active_avg_over_max[1] == 3850.89 / 4401
    assert launches.devices[0].sms == 132


@pytest.mark.parametrize(
    ("cells", "proofs", "is_ambiguous"),
    [
        (["1,234.5"], {"."}, False),
        (["1.234,5"], {","}, False),
        (["1,234,567"], {"."}, False),
        (["1.234.567"], {","}, False),
        (["1,60"], {","}, False),
        (["1.60"], {"."}, False),
        (["0.123"], {"."}, False),
        (["0,123"], {","}, False),
        (["1234.567"], {"."}, False),
        (["117.344"], set(), True),
        (["117,344"], set(), True),
        (["1 234.567"], {"."}, False),
        (["1'234,567"], {","}, False),
        (["12\u00a0345"], set(), False),
        (["1.2.3", "1,2,3", "1.2,3.4", "n/a", "", "(1, 2)", "9", "9e5", "00000000:19:00.0"], set(), False),
        (["-1,234.5"], {"."}, False),
    ],
)
def test_what_cells_prove(cells: list[str], proofs: set[str], is_ambiguous: bool) -> None:
    separators = Separators()
    for cell in cells:
        separators.see(cell)
    assert set(separators.proofs) == proofs
    assert (separators.ambiguous is not None) == is_ambiguous


@given(st.floats(0.001, 1e12), st.sampled_from([(",", "."), (".", ","), ("\u202f", ","), ("'", ".")]))
def test_numbers_come_back_in_every_locale(value: float, marks: tuple[str, str]) -> None:
    printed = f"{value:,.2f}"
    cell = printed.translate(str.maketrans({",": marks[0], ".": marks[1]}))
    separators = Separators()
    separators.see(cell)
    assert separators.problem() is None
    assert separators.number(cell) == float(printed.replace(",", ""))


def test_scales() -> None:
    assert [scale("gpu__time_duration.sum", unit) for unit in ("ns", "usecond", "second")] == [1, 1e3, 1e9]
    assert [scale("x", unit) for unit in ("byte/block", "Kbyte/block", "Mcycle", "", "%")] == [1, 1e3, 1e6, 1, 1]
