"""The encryption of one export: Parquet's own, by pyarrow, with AES-GCM of each part of a file.

Footers are encrypted as well, and so are the statistics in them.  Each file has a key of its own.
What is decrypted is what was written as the file of this name in this export: a file that was
changed, or that has the place of another one, does not decrypt.
"""

import io
from base64 import b64decode, b64encode
from typing import Any

from quorate_spark.exports.export_key import ExportKey
from quorate_spark.exports.target import TargetRefused, first_line

MAGIC = b"PARE"
"""The first bytes of a file with an encrypted footer; they alone are not authenticated."""
_SEALED = "sealed"


class Cipher:
    """Encrypts and decrypts the files of one export.  `salt`: its own, random, not secret."""

    def __init__(self, key: ExportKey, export_id: str, salt: bytes) -> None:
        self.key_id = key.id
        self.salt = salt
        self._key = key
        self._export_id = export_id

    def properties_to_write(self, name: str) -> Any:
        """Return pyarrow's properties to write the file of this name."""
        from pyarrow.parquet import encryption

        return encryption.create_encryption_properties(
            self._key.for_file(self.salt, name),
            aad_prefix=self._bound_to(name),
            store_aad_prefix=False,
            encryption_algorithm="AES_GCM_V1",
            plaintext_footer=False,
        )

    def properties_to_read(self, name: str) -> Any:
        """Return pyarrow's properties to read the file of this name, and no file in the clear."""
        from pyarrow.parquet import encryption

        return encryption.create_decryption_properties(
            self._key.for_file(self.salt, name),
            aad_prefix=self._bound_to(name),
            check_footer_integrity=True,
            allow_plaintext_files=False,
        )

    def _bound_to(self, name: str) -> bytes:
        return f"{self._export_id}/{name}".encode()


def sealed(data: bytes, cipher: Cipher) -> str:
    """Return these bytes encrypted: a Parquet file with one cell, in base64."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    table = pa.table({_SEALED: pa.array([data], pa.binary())})
    properties = cipher.properties_to_write(_SEALED)
    pq.write_table(table, file, compression="zstd", encryption_properties=properties)
    return b64encode(file.getvalue()).decode()


def unsealed(text: str, cipher: Cipher) -> bytes:
    """Return the bytes that were sealed.  Raises TargetRefused: they are not as they were."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = io.BytesIO(b64decode(text, validate=True))
        check_magic(file)
        properties = cipher.properties_to_read(_SEALED)
        [data] = pq.read_table(file, decryption_properties=properties)[_SEALED].to_pylist()
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise TargetRefused(first_line(error)) from error
    return bytes(data)


def check_magic(file: Any) -> None:
    """Raise ValueError unless the file begins as an encrypted one; go back to its begin."""
    begin = file.read(len(MAGIC))
    file.seek(0)
    if begin != MAGIC:
        raise ValueError(f"it does not begin with {MAGIC.decode()}, so it is not encrypted")
