// All parts are defined at this point.
watch("value", mount);
mount();
pollLoop();
