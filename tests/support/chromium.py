"""Find a browser, and its command-line flags."""

from __future__ import annotations

import os
import shutil

BROWSER_NAMES = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    "microsoft-edge",
)
# Chromium opens a window for each profile, and two renderers for the address bar of each window:
# more than a second of a core.
# The other features are those that Playwright disables; of two such flags the last is in force.
DISABLED_FEATURES = (
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"),
    *("PreloadTopChromeWebUI", "AvoidUnnecessaryBeforeUnloadCheckSync"),
    *("DestroyProfileOnBrowserClose", "HttpsUpgrades", "HttpsFirstBalancedModeAutoEnable"),
    *("LensOverlay", "MediaRouter", "PaintHolding", "ThirdPartyStoragePartitioning"),
    *("AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints", "NetworkTimeServiceQuerying"),
    *("AimEnabled", "PreconnectToSearch"),
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=" + ",".join(DISABLED_FEATURES),
]


def find_browser() -> str | None:
    """Return BROWSER_PATH, or the first Chromium or Chrome on the path."""
    return os.environ.get("BROWSER_PATH") or next(
        filter(None, map(shutil.which, BROWSER_NAMES)), None
    )
