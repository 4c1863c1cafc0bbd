"""The fixed parts of a zip archive's records, for its reader and its writer alike.

Source: PKWARE's APPNOTE.TXT, sections 4.3.7 to 4.3.16.
"""

from __future__ import annotations

import struct

LOCAL_SIGNATURE = b"PK\x03\x04"
LOCAL = struct.Struct("<4s5H3I2H")

CENTRAL_SIGNATURE = b"PK\x01\x02"
CENTRAL = struct.Struct("<4s6H3I5H2I")

END_SIGNATURE = b"PK\x05\x06"
END = struct.Struct("<4s4H2IH")

LOCATOR_SIGNATURE = b"PK\x06\x07"
LOCATOR = struct.Struct("<4sIQI")

END64_SIGNATURE = b"PK\x06\x06"
END64 = struct.Struct("<4sQ2H2I4Q")
