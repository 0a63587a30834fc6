"""`make s3-server`: installs the server that takes the part of S3 in tests."""

import sys

from kept_builds import BuildError
from quorate_s3.server import install

if __name__ == "__main__":
    try:
        print(install())
    except BuildError as error:
        sys.exit(f"make s3-server: {error}")
