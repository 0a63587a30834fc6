"""One Spark for the whole run: starting it takes seconds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from quorate_spark.passes.spark_session import own_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A local session as a validation has it."""
    with own_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session
