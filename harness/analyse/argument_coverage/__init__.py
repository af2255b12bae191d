"""Which corners of an operator's arguments the drawn cases reach, and which they could."""
