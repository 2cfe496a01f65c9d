// All views are registered at this point.
buildViews();
watch("value", mount);
mount();
pollLoop();
