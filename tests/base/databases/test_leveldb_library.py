"""LevelDB folders to and from the LevelDB library."""

import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leveldb_records import make_value, needs_plyvel, plyvel

from caffejax.base.databases import LevelDb, write_leveldb
from caffejax.base.errors import DataError

STEPS = st.one_of(
    st.tuples(
        st.just("batch"),
        st.lists(
            st.tuples(
                st.integers(0, 40),  # the key
                st.sampled_from([None, 0, 1, 100, 3000, 33_000, 140_000]),  # the size of the value; None deletes
            ),
            max_size=12,
        ),
    ),
    st.tuples(st.sampled_from(["reopen", "compact"]), st.none()),
)


@needs_plyvel
@settings(max_examples=60)
@given(steps=st.lists(STEPS, max_size=12), snappy=st.booleans(), seed=st.integers(0, 1000))
def test_files_written_by_the_library_are_read(tmp_path_factory, steps, snappy, seed):
    path = tmp_path_factory.mktemp("plyvel")
    options = {"write_buffer_size": 1 << 16, "block_size": 1 << 10, "max_file_size": 1 << 20}

    def open_database():
        return plyvel.DB(str(path / "db"), create_if_missing=True, compression="snappy" if snappy else None, **options)

    db, expected = open_database(), {}
    for step, changes in steps:
        if step == "reopen":
            db.close()
            db = open_database()
        elif step == "compact":
            db.compact_range()
        else:
            with db.write_batch() as batch:
                for key_number, size in changes:
                    key = b"key" * (key_number % 3) + b"%03d" % key_number
                    if size is None:
                        batch.delete(key)
                        expected.pop(key, None)
                    else:
                        seed += 1
                        expected[key] = make_value(seed, size, compressible=key_number % 2 == 0)
                        batch.put(key, expected[key])
    db.close()
    try:
        if expected:
            assert list(LevelDb(path / "db")) == sorted(expected.items())
        else:
            with pytest.raises(DataError, match="the LevelDB has no records"):
                len(LevelDb(path / "db"))
    finally:
        shutil.rmtree(path)


@needs_plyvel
@settings(max_examples=30)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 500, 20_000, 140_000]), max_size=40),
    compress=st.booleans(),
    prefix=st.binary(max_size=300),
)
def test_the_library_reads_written_files(tmp_path_factory, sizes, compress, prefix):
    path = tmp_path_factory.mktemp("ours")
    expected = [(prefix + b"%04d" % i, make_value(i, size, compressible=i % 2 == 0)) for i, size in enumerate(sizes)]
    write_leveldb(path / "db", expected, compress)
    if expected:
        assert list(LevelDb(path / "db")) == expected
    db = plyvel.DB(str(path / "db"), paranoid_checks=True)
    assert list(db.iterator(verify_checksums=True)) == expected
    assert all(db.get(key) == value for key, value in expected)
    db.put(b"", b"new")
    db.compact_range()
    db.close()
    assert list(LevelDb(path / "db")) == [(b"", b"new"), *expected]
    shutil.rmtree(path)
