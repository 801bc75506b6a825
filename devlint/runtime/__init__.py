"""devlint.runtime: corrected device utilities and the AMP loop, over plain torch."""
