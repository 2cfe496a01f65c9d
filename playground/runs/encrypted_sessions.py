"""Read the session that a browser stored with version 0.2.0, encrypted by `gr.BrowserState`.

The page stores the session as JSON and replaces the old value when it loads. This file and its
caller's line go away in version 0.4.0.
"""

import base64
import hashlib
import json
import re

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

# The encryption concealed nothing: each page of version 0.2.0 contained this secret.
SECRET = "the browser's own memory, no secret kept from it"
PASSPHRASE = hashlib.sha256(SECRET.encode()).hexdigest().encode()
# base64 of 16 unused bytes, and of the format of openssl: "Salted__", the salt, the ciphertext
ENCRYPTED_PATTERN = re.compile(r"[\w+/]{22}==:(U2FsdGVkX1[\w+/]{1,500}={0,2})", re.ASCII)
BLOCK_BYTES = 16
KEY_BYTES = 32


def decrypt_session(text: str) -> str:
    """Return the session in an encrypted value; empty if the value is not valid."""
    match = ENCRYPTED_PATTERN.fullmatch(text)
    if match is None:
        return ""
    try:
        data = base64.b64decode(match[1], validate=True)
        key, initial_vector = _derive_key(data[8:BLOCK_BYTES])
        decryptor = Cipher(algorithms.AES(key), modes.CBC(initial_vector)).decryptor()
        unpadder = PKCS7(8 * BLOCK_BYTES).unpadder()
        padded = decryptor.update(data[BLOCK_BYTES:]) + decryptor.finalize()
        session = json.loads(unpadder.update(padded) + unpadder.finalize())
    except (ValueError, RecursionError):
        return ""
    return session if isinstance(session, str) else ""


def _derive_key(salt: bytes) -> tuple[bytes, bytes]:
    """Return key and initialization vector as EVP_BytesToKey of OpenSSL does, with MD5."""
    derived = block = b""
    while len(derived) < KEY_BYTES + BLOCK_BYTES:
        block = hashlib.md5(block + PASSPHRASE + salt, usedforsecurity=False).digest()
        derived += block
    return derived[:KEY_BYTES], derived[KEY_BYTES : KEY_BYTES + BLOCK_BYTES]
