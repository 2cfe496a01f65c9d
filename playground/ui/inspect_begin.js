// All views are registered at this point.
buildViews();
watch("value", attach);
attach();
goOn();
