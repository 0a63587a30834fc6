"""What tests of every level share."""

pytest_plugins = ["machine_parts", "quorate_control_plane.fixtures", "quorate_cluster.fixtures"]
