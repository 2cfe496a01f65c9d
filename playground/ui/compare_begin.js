// All views are known by now.
buildViews();
watch("value", attach);
attach();
goOn();
