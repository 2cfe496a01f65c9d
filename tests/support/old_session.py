"""A session that Gradio's BrowserState has stored in a browser, recorded with version 0.2.0."""

OLD_OWNER = "ai0aiXIENHzP02gcaB_TFZOpeK5LcB34"
OLD_SESSION = (
    "SKw7Kg/26GDLckp3FFB2tA==:U2FsdGVkX19rxdaWig4H/6nKeP8cv2BqR58l52xQMrN91xiwma9dAQmS0NN3"
    "Pk9isZhZcnSbspZpr0l7t7gAOWFkLG7ss4Fyz2tbcQ0wNlw="
)
